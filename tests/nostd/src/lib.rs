//! Proof that `strandline-core` needs no `std`: this library brings its own panic handler and
//! allocator. A crate that linked `std`, however deep in the core's graph, would bring a second
//! panic handler, and the build would fail.
#![no_std]
#![warn(missing_docs)]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use strandline_core::machine::Pending;

const ARENA_BYTES: usize = 64 * 1024;

#[repr(align(16))]
struct Arena([u8; ARENA_BYTES]);

/// Hands out an arena once, from its start to its end, and takes nothing back.
struct Bump {
    used: AtomicUsize,
}

static mut ARENA: Arena = Arena([0; ARENA_BYTES]);

#[global_allocator]
static ALLOCATOR: Bump = Bump { used: AtomicUsize::new(0) };

// SAFETY: `used` only grows, so no two calls hand out the same bytes; what is handed out lies inside
// the arena, whose alignment covers every layout that is not refused.
unsafe impl GlobalAlloc for Bump {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > align_of::<Arena>() {
            return ptr::null_mut();
        }
        let place = |used: usize| {
            let start = used.next_multiple_of(layout.align());
            Some((start, start.checked_add(layout.size()).filter(|end| *end <= ARENA_BYTES)?))
        };
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(place(used)?.1));
        match taken.ok().and_then(place) {
            // SAFETY: `place` found `start` inside the arena.
            Some((start, _)) => unsafe { (&raw mut ARENA.0).cast::<u8>().add(start) },
            None => ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// Uses the core from outside, so that the linker keeps it.
#[unsafe(no_mangle)]
pub extern "C" fn strandline_nostd_is_idle(pending: &Pending) -> bool {
    !pending.commands && !pending.events && !pending.frames && pending.deadline.is_none()
}
