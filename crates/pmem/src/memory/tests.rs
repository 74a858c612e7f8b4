//! Every way to write and read, places outside, and hooks at the end of a window.

use std::sync::Arc;

use crate::addr::PmAddr;
use crate::domain::Domain;
use crate::error::Result;
use crate::memory::Memory;

#[test]
fn bytes_of_every_length_round_trip_by_every_way() -> Result<()> {
    let memory = Memory::anonymous(8192)?;
    let pattern: Vec<u8> = (0..2000_u32).map(|i| (i * 7 + 1) as u8).collect();
    for len in (0..200).chain([511, 512, 513, 1999]) {
        for start in [0, 8, 56, 64] {
            let at = PmAddr::new(0, 1024 + start);
            for way in 0..4 {
                memory.zero(PmAddr::new(0, 1024), 2560);
                match way {
                    0 => memory.write(at, &pattern[..len]),
                    1 => memory.stream(at, &pattern[..len]),
                    2 => {
                        let (head, tail) = pattern[..len].split_at(len / 16 * 8);
                        memory.stream_each(&[(at, head), (at.plus(head.len() as u64), tail)]);
                    }
                    _ => memory.write_back(at, &pattern[..len]),
                }
                memory.fence();
                let mut back = vec![0xEE; len];
                memory.read(at, &mut back);
                assert_eq!(back, pattern[..len], "len {len} start {start} way {way}");
                assert_eq!(memory.load(at.plus((len as u64).next_multiple_of(8))), 0, "behind the end");
            }
        }
    }
    Ok(())
}

/// The message of the panic that `work` must end with.
fn caught(work: impl FnOnce() -> u64) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).expect_err("a panic");
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| panic.downcast_ref::<&str>().expect("text").to_string())
}

#[test]
fn ranges_whose_length_would_wrap_are_refused() -> Result<()> {
    let memory = Memory::anonymous(4096)?;
    for words in [1 << 61, (1 << 61) + 1, 1 << 63, u64::MAX, 513] {
        assert!(memory.window(PmAddr::NULL, words).is_none(), "{words:#x} words");
    }
    assert!(memory.window(PmAddr::NULL, 512).is_some());
    assert!(!memory.contains(PmAddr::new(0, 64), u64::MAX - 63));
    let refused = caught(|| memory.words(PmAddr::NULL, 1 << 61).bytes());
    assert!(refused.contains("outside the part"), "{refused}");
    assert!(Memory::anonymous(u64::MAX).is_err());
    assert!(Memory::traced(&[vec![0; 64]], u64::MAX, Arc::new(crate::SilentTracer)).is_err());
    Ok(())
}

#[test]
fn a_window_under_hooks_ends_where_it_ends() -> Result<()> {
    let memory = Memory::traced(&[vec![7; 4096]], 4096, Arc::new(crate::SilentTracer))?;
    let window = memory.window(PmAddr::new(0, 64), 2).expect("inside");
    assert_eq!((window.load(1), window.get::<u64>(1)), (0x0707_0707_0707_0707, 0x0707_0707_0707_0707));
    for index in [2, 100, 1 << 61, usize::MAX] {
        let ways: [&dyn Fn() -> u64; 3] =
            [&|| window.load(index), &|| window.get::<u64>(index), &|| window.load_words::<1>(index)[0]];
        for (way, load) in ways.into_iter().enumerate() {
            let text = caught(load);
            assert!(text.contains("out of range") || text.contains("out of bounds"), "{index:#x} {way}: {text}");
        }
    }
    Ok(())
}

#[test]
fn memory_of_this_process_never_calls_itself_dax() -> Result<()> {
    let memory = Memory::anonymous(4096)?;
    assert_eq!((memory.domain(), memory.domain().to_string().as_str()), (Domain::DaxEmulated, "dax-emulated"));
    assert!(Memory::anonymous_with(&[4096], Domain::Dax, None).is_err());
    Ok(())
}

#[test]
fn compare_exchange_tells_what_it_found() -> Result<()> {
    let memory = Memory::anonymous(4096)?;
    let at = PmAddr::new(0, 64);
    assert_eq!(memory.compare_exchange(at, 0, 5), Ok(0));
    assert_eq!(memory.compare_exchange(at, 0, 6), Err(5));
    assert_eq!(memory.load(at), 5);
    Ok(())
}

#[test]
#[should_panic(expected = "names a part")]
fn foreign_part_panics() {
    let memory = Memory::anonymous(4096).expect("memory");
    let _ = memory.load(PmAddr::new(1, 64));
}
