"""Models at work: speech to text, language, text to speech."""
