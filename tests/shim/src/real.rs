//! The calls behind ours.

/// The next function of this name behind this library.
macro_rules! real {
    ($name:ident: fn($($arg:ty),*) -> $result:ty) => {{
        static ADDRESS: std::sync::atomic::AtomicPtr<libc::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let mut address = ADDRESS.load(std::sync::atomic::Ordering::Relaxed);
        if address.is_null() {
            let name = concat!(stringify!($name), "\0");
            // Safety: a C string; whatever other threads find is the same.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
            if address.is_null() {
                std::process::abort();
            }
            ADDRESS.store(address, std::sync::atomic::Ordering::Relaxed);
        }
        type Function = unsafe extern "C" fn($($arg),*) -> $result;
        // Safety: the system's function of that name has this type.
        unsafe { std::mem::transmute::<*mut libc::c_void, Function>(address) }
    }};
}

pub(crate) use real;
