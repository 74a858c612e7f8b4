//! Beside the fabric: one copy in this process, and a stream to each replica without any protocol of groups.
//!
//! Both write the same pages to the same kind of memory. The streams have no order, no takeover and no repair: each
//! replica writes a page, fences and answers. The writer waits for a majority, as the fabric does.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use lodestone_fabric::PageArea;
use lodestone_pmem::{Memory, PmAddr};

use super::PAGES;

/// Times of writes, and how long all took.
pub struct Plain {
    pub times: Histogram<u64>,
    pub seconds: f64,
}

/// Pages of one copy.
struct Copy {
    memory: Memory,
    pages: PageArea,
}

impl Copy {
    fn new(bytes: u32) -> Result<Self> {
        let range = PageArea::bytes_for(bytes, PAGES);
        let memory = Memory::anonymous(4096 + range)?;
        let pages = PageArea::open(&memory, PmAddr::new(0, 4096), range, bytes, PAGES)?;
        Ok(Self { memory, pages })
    }

    fn write(&mut self, number: u64, page: &[u8]) -> Result<()> {
        self.pages.write(1 + number % (PAGES - 1), page)?;
        self.pages.settle()?;
        // Before the write is answered.
        self.memory.fence();
        self.memory.durable()?;
        Ok(())
    }
}

fn timed(operations: u64, mut write: impl FnMut(u64) -> Result<()>) -> Result<Plain> {
    let mut times = Histogram::<u64>::new(3)?;
    let started = Instant::now();
    for number in 0..operations {
        let begun = Instant::now();
        write(number)?;
        times.record(u64::try_from(begun.elapsed().as_nanos())?)?;
    }
    Ok(Plain { times, seconds: started.elapsed().as_secs_f64() })
}

/// Durable writes of one copy.
pub fn local(bytes: u32, operations: u64) -> Result<Plain> {
    let mut copy = Copy::new(bytes)?;
    let page = vec![7; usize::try_from(bytes)?];
    timed(operations, |number| copy.write(number, &page))
}

/// Durable writes of several copies, each sent over a stream of its own.
pub fn streams(bytes: u32, members: u16, operations: u64) -> Result<Plain> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listening on the loopback interface")?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        let mut streams = Vec::new();
        for _ in 0..members {
            let own = TcpStream::connect(address).context("connecting to a replica")?;
            own.set_nodelay(true)?;
            let (other, _) = listener.accept()?;
            other.set_nodelay(true)?;
            scope.spawn(move || serve(other, bytes));
            streams.push(own);
        }
        let page = vec![7; usize::try_from(bytes)?];
        let quorum = usize::from(members) / 2 + 1;
        // Answers that were not waited for come before those of the next write.
        let mut behind = vec![0_u64; streams.len()];
        timed(operations, |number| {
            for (stream, behind) in streams.iter_mut().zip(&mut behind) {
                stream.write_all(&page)?;
                *behind += 1;
            }
            let last = number + 1 == operations;
            let waited = if last { streams.len() } else { quorum };
            for (stream, behind) in streams.iter_mut().zip(&mut behind).take(waited) {
                while *behind > 0 {
                    stream.read_exact(&mut [0; 8])?;
                    *behind -= 1;
                }
            }
            Ok(())
        })
    })
}

/// A replica, until its stream ends.
fn serve(mut stream: TcpStream, bytes: u32) -> Result<()> {
    let mut copy = Copy::new(bytes)?;
    let mut page = vec![0; usize::try_from(bytes)?];
    for number in 0.. {
        if stream.read_exact(&mut page).is_err() {
            break;
        }
        copy.write(number, &page)?;
        stream.write_all(&[1; 8])?;
    }
    Ok(())
}
