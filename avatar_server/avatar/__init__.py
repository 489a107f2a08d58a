"""One running avatar: peers, turn-taking, playout, rendering, encoding."""
