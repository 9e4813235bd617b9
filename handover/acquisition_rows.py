"""What a session's row means for a copy that is here, as inputs of its acquisition (handover/acquisition.py)."""

from __future__ import annotations

from handover.acquisition_inputs import (
    ROLLED_BACK,
    AcquisitionInput,
    CopyInDoubt,
    CopyOutlived,
    CopySuperseded,
    CopyToActivate,
    CopyToCheck,
    CopyToCommit,
    RowBehind,
)
from waypost.identity import Epoch, Ownership, ProxyId


def is_row_before_copy(epoch: Epoch, proxy: ProxyId, row: Ownership | None) -> bool:
    """Tell whether a row is of a time before a copy that is here: of an earlier epoch than the copy, or of the same
    epoch and another proxy.

    Args:
        epoch: of the copy.
        proxy: this proxy.
        row: as the registry has it; None: it has none, which counts as older.
    """
    return row is None or (row.epoch, row.proxy == proxy) < (epoch, True)


def dormant_input(
    epoch: Epoch, proxy: ProxyId, row: Ownership | None, *, read: bool, was_served: bool, is_final: bool
) -> AcquisitionInput:
    """Return the input that a row is to the acquisition of a dormant copy.

    Args:
        epoch: of the copy.
        proxy: this proxy.
        row: as the registry has it; None: it has none.
        read: the row was read from the registry for this, and not told by the watch, which may be behind.
        was_served: this process served the copy: nobody else can have served the session since.
        is_final: a row of an earlier epoch has stood for so long that nobody corrects it, and names nobody who lives.
    """
    if row is None and not read:
        return CopyInDoubt()
    if row is None or is_row_before_copy(epoch, proxy, row):
        if was_served:
            return CopyToActivate(row)
        # A later owner may live, and corrects the row; or it has died, and a changelog says so.
        return CopyToCheck(row) if is_final else ROLLED_BACK
    # A copy of an earlier generation is none of this session, though both are ours (handover rule 22).
    if row.proxy == proxy and not row.is_later_generation_than(epoch):
        return CopyToActivate(row)
    return CopyOutlived(row)


def activation_input(epoch: Epoch, proxy: ProxyId, row: Ownership | None) -> AcquisitionInput:
    """Return the input for a copy whose claim of the next epoch found another row than it expected.

    Args:
        epoch: of the copy.
        proxy: this proxy.
        row: as the registry has it; None: it has none.
    """
    if row is not None and row.proxy == proxy and not row.is_later_generation_than(epoch):
        # An earlier incarnation of ours may have served at that epoch: the one behind it is taken.
        return CopyToActivate(row) if row.epoch >= epoch else RowBehind()
    if row is None or is_row_before_copy(epoch, proxy, row):
        return CopyInDoubt()
    return CopyOutlived(row)


def orphan_input(
    epoch: Epoch, proxy: ProxyId, source: ProxyId | None, row: Ownership | None, *, read: bool, is_last: bool
) -> AcquisitionInput:
    """Return the input that a row is to an orphan, a staged copy whose transfer is gone: it is ours if the row names
    this proxy at the copy's very epoch.

    As long as the row is the source's, of the epoch before, the source has not served since the cut, and an earlier
    claim of ours may still be applied: the copy commits after all, once it is certainly stored. So it does where the
    registry has gone back and the source does not write its row again. Had anybody served since, the changelog would
    say so: what an owner wrote at the copy's epoch or later counts more than what is written of the copy (rule 19). By
    any other row, also one of another proxy at the copy's epoch, the copy is superseded.

    Args:
        epoch: of the copy: that at which its transfer would have committed.
        proxy: this proxy.
        source: the proxy that handed the copy over; None: it is not known, and any owner of the epoch before counts as
            it.
        row: as the registry has it; None: it has none.
        read: the row was read from the registry for this, and not reported by the watch, which may be behind.
        is_last: a row of long before the copy has stood for so long that nobody will correct it, and nobody who lives
            is named by it.
    """
    if row == Ownership(proxy, epoch):
        return CopyToActivate(row)
    if row is None or row.epoch + 1 < epoch:
        if not read:
            return CopyInDoubt()
        return CopyToCommit(row) if is_last else ROLLED_BACK
    is_from_there = source is None or row.proxy == source
    return CopyToCommit(row) if row.epoch + 1 == epoch and is_from_there else CopySuperseded()
