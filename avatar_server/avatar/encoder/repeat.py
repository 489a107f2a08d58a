"""A picture that did not change, as a few bytes written without the encoder.

H.264 can say of every macroblock that it is as in the picture before ("skipped"): a whole such
picture is one slice of some ten bytes, while asking the encoder to find that out costs it a look
at every block. The encoder does not know of pictures written here, so the frame numbers of those
it makes afterwards are moved on by as many (ITU-T H.264, 7.3.3 and 7.4.3: frame_num counts
reference pictures since the last IDR).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from avatar_server.avatar.packets import split_annexb

_SLICE, _IDR, _SPS, _PPS = 1, 5, 7, 8
_START = b"\x00\x00\x00\x01"
_P_SLICE = 5


class _Bits:
    """Reads a bit string."""

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "big")
        self._left = len(data) * 8

    @property
    def left(self) -> int:
        return self._left

    def take(self, count: int) -> int:
        self._left -= count
        if self._left < 0:
            raise ValueError("the bits end early")
        return self._value >> self._left & ((1 << count) - 1)

    def golomb(self) -> int:
        """ue(v), H.264 9.1."""
        zeros = 0
        while self.take(1) == 0:
            zeros += 1
        return (1 << zeros) - 1 + self.take(zeros)


def _golomb(value: int) -> str:
    code = f"{value + 1:b}"
    return "0" * (len(code) - 1) + code


def _unescaped(unit: bytes) -> bytes:
    return unit.replace(b"\x00\x00\x03", b"\x00\x00")


def _escaped(payload: bytes) -> bytes:
    return re.sub(rb"\x00\x00(?=[\x00-\x03])", b"\x00\x00\x03", payload)


@dataclass(frozen=True, slots=True)
class _Form:
    """What a slice header needs to know of the parameter sets."""

    frame_num_bits: int
    macroblocks: int


class PictureRepeater:
    """Follows one encoder's stream and can add pictures that repeat the last one.

    Only for streams of the kind this package's encoder makes: baseline, CAVLC, one slice a
    picture, one reference, output in coding order. `ready` says whether that has been seen.
    """

    def __init__(self) -> None:
        self._form: _Form | None = None
        self._next_frame_num = 0
        self._added = 0

    @property
    def ready(self) -> bool:
        return self._form is not None

    def follow(self, stream: bytes) -> bytes:
        """The encoder's next access unit (Annex B), with its frame number put right."""
        units = list(split_annexb(stream))
        kinds = [unit[0] & 0x1F for unit in units]
        if _IDR in kinds:
            sets = dict(zip(kinds, units, strict=True))
            self._form = _read_form(sets.get(_SPS), sets.get(_PPS))
            self._next_frame_num, self._added = 1, 0
            return stream
        form = self._form
        if form is None:
            return stream
        slices = [index for index, kind in enumerate(kinds) if kind == _SLICE]
        if len(slices) != 1:
            self._form = None
            return stream
        self._next_frame_num += 1
        if not self._added:
            return stream
        units[slices[0]] = _renumbered(units[slices[0]], form.frame_num_bits, self._added)
        return b"".join(_START + unit for unit in units)

    def repeat(self) -> bytes:
        """One more picture like the last (Annex B); only while `ready`."""
        form = self._form
        if form is None:
            raise RuntimeError("no stream has been followed that can be repeated")
        number = self._next_frame_num % (1 << form.frame_num_bits)
        self._next_frame_num += 1
        self._added += 1
        bits = (
            _golomb(0)  # first_mb_in_slice
            + _golomb(_P_SLICE)
            + _golomb(0)  # pic_parameter_set_id
            + f"{number:0{form.frame_num_bits}b}"
            + "0"  # num_ref_idx_active_override_flag
            + "0"  # ref_pic_list_modification_flag_l0
            + "0"  # adaptive_ref_pic_marking_mode_flag
            + _golomb(0)  # slice_qp_delta
            + _golomb(1)  # disable_deblocking_filter_idc: nothing is filtered
            + _golomb(form.macroblocks)  # mb_skip_run
            + "1"  # rbsp_stop_one_bit
        )
        bits += "0" * (-len(bits) % 8)
        body = int(bits, 2).to_bytes(len(bits) // 8, "big")
        # nal_ref_idc 2: the picture is a reference, in place of the one it repeats.
        return _START + _escaped(bytes((0x40 | _SLICE,)) + body)


def _renumbered(unit: bytes, frame_num_bits: int, by: int) -> bytes:
    raw = _unescaped(unit)
    head = _Bits(raw[1:17])
    total = head.left
    head.golomb()
    head.golomb()
    head.golomb()
    number = head.take(frame_num_bits)
    shift = head.left + 8 * (len(raw) - 1) - total
    mask = (1 << frame_num_bits) - 1
    value = int.from_bytes(raw, "big")
    value ^= (number ^ ((number + by) & mask)) << shift
    return _escaped(value.to_bytes(len(raw), "big"))


def _read_form(sps: bytes | None, pps: bytes | None) -> _Form | None:
    """The stream's form, or `None` where a repeated picture would need another slice header."""
    if sps is None or pps is None:
        return None
    try:
        bits = _Bits(_unescaped(sps)[1:])
        profile = bits.take(8)
        bits.take(16)  # constraint flags, level
        sps_id = bits.golomb()
        frame_num_bits = bits.golomb() + 4
        order_type = bits.golomb()
        if profile != 66 or sps_id != 0 or order_type != 2:
            return None
        references = bits.golomb()
        bits.take(1)  # gaps_in_frame_num_value_allowed_flag
        macroblocks = (bits.golomb() + 1) * (bits.golomb() + 1)
        frames_only = bits.take(1)
        bits = _Bits(_unescaped(pps)[1:])
        ids = (bits.golomb(), bits.golomb())
        arithmetic, field_order = bits.take(1), bits.take(1)
        slice_groups = bits.golomb()
        bits.golomb()  # num_ref_idx_l0_default_active_minus1
        bits.golomb()  # num_ref_idx_l1_default_active_minus1
        weighted = bits.take(3)
        bits.golomb()  # pic_init_qp_minus26, se(v): as long as ue(v)
        bits.golomb()  # pic_init_qs_minus26
        bits.golomb()  # chroma_qp_index_offset
        deblocking_control, _, redundant = bits.take(1), bits.take(1), bits.take(1)
    except ValueError:
        return None
    plain = not (any(ids) or arithmetic or field_order or slice_groups or weighted or redundant)
    if references != 1 or not frames_only or not plain or not deblocking_control:
        return None
    return _Form(frame_num_bits, macroblocks)
