"""Routes of recordings: for operators alone."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from avatar_server.config import RecordingSettings
from avatar_server.gateway.access import Access
from avatar_server.gateway.problems import ProblemError, problems
from avatar_server.recording import files
from avatar_server.recording.store import Recording, RecordingInUse, RecordingStore

_TYPES = {
    files.MOVIE: "video/mp4",
    files.CAPTIONS: "text/vtt",
    files.TURNS: "application/jsonl",
}


class RecordingView(BaseModel):
    """A recording as the API shows it."""

    id: str
    session: str
    avatar: str
    state: str = Field(description="recording, complete, or cut-off: its process was killed.")
    began: str = Field(description="UTC, ISO 8601.")
    ended: str | None
    duration_s: float = Field(description="0 until it has ended.")
    bytes: int
    viewers: int
    viewer_sound: bool = Field(description="Whether viewers' microphones are in it.")
    viewer_text: bool = Field(description="Whether their words are in captions and turn log.")
    dropped: dict[str, int] = Field(description="What could not be written in time.")
    stopped_because: str = Field(description="Why it ended before the talk did.")
    video: str = Field(description="The address of the MP4 file.")
    captions: str = Field(description="The address of the WebVTT file.")
    turns: str = Field(description="The address of the turn log, a JSON object a line.")


def recording_view(recording: Recording) -> RecordingView:
    """What the API shows of a recording."""
    about = recording.about
    at = f"/v1/recordings/{recording.id}"
    return RecordingView(
        id=recording.id,
        session=about.session,
        avatar=about.avatar,
        state=recording.state,
        began=about.began,
        ended=about.ended,
        duration_s=about.duration_s,
        bytes=recording.bytes,
        viewers=about.viewers,
        viewer_sound=about.viewer_sound,
        viewer_text=about.viewer_text,
        dropped=about.dropped,
        stopped_because=about.stopped_because,
        video=f"{at}/video",
        captions=f"{at}/captions",
        turns=f"{at}/turns",
    )


def recording_routes(settings: RecordingSettings, access: Access) -> APIRouter:
    """Everything under /v1/recordings."""
    router = APIRouter(prefix="/v1/recordings", tags=["recordings"])
    store = RecordingStore(settings.path)
    missing = problems(
        s401="No key, or one that is not valid.",
        s403="The key may not operate this server.",
        s404="There is no such recording.",
    )

    async def find(name: str) -> Recording:
        recording = await asyncio.to_thread(store.get, name)
        if recording is None:
            raise ProblemError(
                404,
                "unknown-recording",
                "There is no such recording; it may have been deleted when its time was over.",
            )
        return recording

    async def give(name: str, file: str, request: Request) -> FileResponse:
        recording = await find(name)
        path = await asyncio.to_thread(recording.file, file)
        if path is None:
            raise ProblemError(404, "unknown-recording", f"This recording has no {file}.")
        # A player asks for many ranges of one file: the first is what somebody did.
        if request.headers.get("range", "bytes=0-").startswith("bytes=0-"):
            access.note(request, "recording.read", f"{name}/{file}")
        return FileResponse(
            path,
            media_type=_TYPES[file],
            filename=f"{name}.{file}",
            content_disposition_type="inline",
            headers={"Cache-Control": "no-store"},
        )

    @router.get("", summary="Recordings, oldest first, a page at a time")
    async def listing(
        response: Response,
        session: Annotated[str, Query(description="Only of this session.")] = "",
        limit: Annotated[int, Query(ge=1, le=500, description="At most so many.")] = 100,
        after: Annotated[str, Query(description="The id that the last page ended with.")] = "",
    ) -> list[RecordingView]:
        every = await asyncio.to_thread(store.all)
        # Names sort by time: a page goes on also where the last one's end was deleted meanwhile.
        found = [r for r in every if r.id > after and session in ("", r.about.session)]
        page = found[:limit]
        if limit < len(found):
            following = f"/v1/recordings?limit={limit}&after={page[-1].id}"
            if session:
                following += f"&session={page[-1].about.session}"
            response.headers["Link"] = f'<{following}>; rel="next"'
        return [recording_view(recording) for recording in page]

    @router.get("/{recording}", summary="One recording", responses=missing)
    async def one(recording: str) -> RecordingView:
        return recording_view(await find(recording))

    @router.get(
        "/{recording}/video",
        summary="Picture and sound as an MP4 file, in ranges where asked for",
        response_class=FileResponse,
        responses=missing,
    )
    async def video(recording: str, request: Request) -> FileResponse:
        return await give(recording, files.MOVIE, request)

    @router.get(
        "/{recording}/captions",
        summary="Who said what, as WebVTT",
        response_class=FileResponse,
        responses=missing,
    )
    async def captions(recording: str, request: Request) -> FileResponse:
        return await give(recording, files.CAPTIONS, request)

    @router.get(
        "/{recording}/turns",
        summary="Each turn with its times, as JSON lines",
        response_class=FileResponse,
        responses=missing,
    )
    async def turns(recording: str, request: Request) -> FileResponse:
        return await give(recording, files.TURNS, request)

    @router.delete(
        "/{recording}",
        status_code=204,
        summary="Delete a recording",
        responses={**missing, **problems(s409="It is still being written: end its session first.")},
    )
    async def delete(recording: str, request: Request) -> None:
        try:
            if not await asyncio.to_thread(store.delete, recording):
                await find(recording)
        except RecordingInUse as error:
            raise ProblemError(
                409,
                "recording-in-use",
                "This recording is still being written. End its session first.",
            ) from error
        except OSError as error:
            raise ProblemError(
                503, "cannot-delete", f"The recording cannot be deleted: {error.strerror}."
            ) from error
        access.note(request, "recording.delete", recording)

    return router
