//! Seats: the incarnations of workers, and the slots under which they are published.

use warmroute_routing::page::Slot;

/// One incarnation of a worker: from when it was added, restarted or cleared, until the next such event and the purge
/// that follows it. What different incarnations hold never mixes. Numbers are reused once nothing refers to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SeatId(u32);

/// Every seat that may still hold a block.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    seats: Vec<Seat>,
    free: Vec<SeatId>,
    /// The next slot; beyond [`Slot::MAX`] there is none in this generation.
    next_slot: u16,
}

/// What is known of an incarnation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seat {
    /// None if the generation has no slot left.
    slot: Option<Slot>,
    /// The index's version when it ended.
    retired_at: Option<u64>,
    /// Its published blocks.
    pub(crate) published: u64,
    /// The blocks it holds that cannot be published.
    pub(crate) unpublished: u64,
}

// === impl Seats ===

impl Seats {
    /// Whether the next seat will have a slot.
    pub(crate) fn has_slot(&self) -> bool {
        self.next_slot <= Slot::MAX
    }

    /// A new seat, with a slot of its own if there is one left.
    pub(crate) fn open(&mut self) -> SeatId {
        let seat = Seat { slot: self.take_slot(), ..Seat::default() };
        if let Some(id) = self.free.pop() {
            if let Some(old) = self.get_mut(id) {
                *old = seat;
            }
            return id;
        }
        // Every seat that is not free belongs to a worker or has a name to purge: memory ends long before the numbers.
        let id = SeatId(u32::try_from(self.seats.len()).unwrap_or(u32::MAX));
        self.seats.push(seat);
        id
    }

    fn take_slot(&mut self) -> Option<Slot> {
        let slot = Slot::new(self.next_slot)?;
        self.next_slot += 1;
        Some(slot)
    }

    /// The incarnation has ended: its slot is dead from `version` on.
    pub(crate) fn retire(&mut self, id: SeatId, version: u64) {
        if let Some(seat) = self.get_mut(id) {
            seat.retired_at = Some(version);
        }
    }

    /// Nothing refers to the seat any more.
    pub(crate) fn close(&mut self, id: SeatId) {
        self.free.push(id);
    }

    /// Takes every slot back. Each seat that lives on needs [`Seats::seat_anew`].
    pub(crate) fn renumber(&mut self) {
        self.next_slot = 0;
        for seat in &mut self.seats {
            seat.slot = None;
        }
    }

    /// Gives the seat the next slot.
    pub(crate) fn seat_anew(&mut self, id: SeatId) {
        let slot = self.take_slot();
        if let Some(seat) = self.get_mut(id) {
            seat.slot = slot;
        }
    }

    pub(crate) fn get(&self, id: SeatId) -> Option<&Seat> {
        self.seats.get(id.0 as usize)
    }

    pub(crate) fn get_mut(&mut self, id: SeatId) -> Option<&mut Seat> {
        self.seats.get_mut(id.0 as usize)
    }

    /// The slot under which the seat's blocks are published now, if any.
    pub(crate) fn slot(&self, id: SeatId) -> Option<Slot> {
        self.get(id).filter(|seat| seat.retired_at.is_none())?.slot
    }
}

// === impl Seat ===

impl Seat {
    /// Whether a page of this version may still tell of the seat's slot: it was written before the seat ended.
    pub(crate) fn may_be_in_page(&self, version: u64) -> bool {
        self.slot.is_some() && self.retired_at.is_none_or(|retired| version <= retired)
    }
}
