//! The memory of requests on media that lie and devices that fail: a request is never taken for carried out, or for not
//! carried out, when the volume does not know it.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use lodestone_pmem::storage::{Failing, FaultPlan, FaultyStorage, OpenFile, SimulatedDisk};
use lodestone_pmem::{DomainChoice, Pool, PoolOptions};
use lodestone_store::Store;

use crate::access::Caller;
use crate::cluster::remote::calls::{Answer, Call};
use crate::cluster::remote::mounts::carry_out;
use crate::error::Result;
use crate::inode::ROOT;
use crate::requests::Tag;
use crate::volume::{FormatOptions, Volume, VolumeOptions};

const POOL_BYTES: u64 = 6 << 20;

fn pool(domain: DomainChoice) -> PoolOptions {
    let journal_bytes = if domain == DomainChoice::Block { 1 << 20 } else { 0 };
    PoolOptions { size_bytes: POOL_BYTES, domain, journal_bytes, ..PoolOptions::default() }
}

fn quiet() -> VolumeOptions {
    VolumeOptions { background: false, ..VolumeOptions::default() }
}

fn format(path: &Path, domain: DomainChoice) {
    drop(Volume::format_with(path, &pool(domain), &FormatOptions::default()).expect("a volume"));
}

fn open(path: &Path) -> Result<Volume> {
    Volume::open_with(path, &pool(DomainChoice::Process), &quiet())
}

fn tag(request: u64) -> Option<Tag> {
    Tag::new(7, request, 1)
}

/// Makes the file `name` for a request of mount 7.
fn make(volume: &Volume, request: u64, name: &str) -> Result<Answer> {
    let (parent, name, target) = (ROOT, name.as_bytes().to_vec(), Vec::new());
    carry_out(
        volume,
        tag(request),
        &Call::Make { by: Caller::root(), parent, name, mode: 0o100_644, device: 0, target, pins: false },
    )
}

fn bytes(floor: u64, requests: &[(u64, u64)]) -> Vec<u8> {
    let numbers = requests.iter().flat_map(|(request, operation)| [*request, *operation]);
    std::iter::once(floor).chain(numbers).flat_map(u64::to_le_bytes).collect()
}

#[test]
fn requests_with_right_checksums_that_make_no_sense_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.vol");
    format(&path, DomainChoice::Process);
    let volume = open(&path).expect("a volume");
    ["a", "b", "c"].iter().zip(1..).for_each(|(name, request)| _ = make(&volume, request, name).expect("an answer"));
    volume.write_image().expect("a batch");
    let image = volume.inner.core().state.image.clone();
    assert_eq!(image.head().expect("a head").applied, 3);
    let true_bytes = bytes(1, &[(1, 1), (2, 2), (3, 3)]);
    let none: [(u64, u64); 0] = [];
    for (what, mount, forged) in [
        ("an operation that the image does not have", 7, bytes(1, &[(1, 1), (2, 2), (3, 4)])),
        ("no operation", 7, bytes(1, &[(1, 0), (2, 2), (3, 3)])),
        ("one operation for two requests", 7, bytes(1, &[(1, 1), (2, 1), (3, 3)])),
        ("the requests of another mount", 8, true_bytes.clone()),
        ("out of order", 7, bytes(1, &[(2, 2), (1, 1), (3, 3)])),
        ("below the floor", 7, bytes(2, &[(1, 1), (2, 2), (3, 3)])),
        ("far above the floor", 7, bytes(1, &[(1, 1), (2, 2), (3000, 3)])),
        ("a floor, and nothing at it or above it", 7, bytes(9, &none)),
        ("half a request", 7, true_bytes[..32].to_vec()),
        ("nothing", 7, Vec::new()),
    ] {
        image.forge_requests(mount, Some(&forged));
        let error = image.load_requests().expect_err(what).to_string();
        assert!(error.contains("000000000000000"), "{what}: the mount is not named: {error}");
        let report = volume.check(false).expect("a check");
        assert_eq!(report.findings.len(), 1, "{what}: {:?}", report.findings);
        image.forge_requests(8, None);
        image.forge_requests(7, Some(&true_bytes));
        image.load_requests().expect("requests");
    }
    image.forge_requests(7, Some(&bytes(1, &[(1, 1), (2, 2), (3, 4)])));
    drop((image, volume));
    let error = open(&path).expect_err("nobody knows what was carried out").to_string();
    assert!(error.contains("the requests of mount 0000000000000007 make no sense"), "{error}");
}

/// The image says that a request was carried out, and the log has it as a later operation.
#[test]
fn an_image_and_a_log_that_contradict_each_other_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.vol");
    format(&path, DomainChoice::Process);
    let volume = open(&path).expect("a volume");
    volume.create("/of-nobody").expect("a file");
    make(&volume, 1, "a").expect("an answer");
    volume.write_image().expect("a batch");
    make(&volume, 2, "b").expect("an answer");
    drop(volume);
    let copy = folder.path().join("copy.vol");
    std::fs::copy(&path, &copy).expect("a copy");
    let volume = open(&copy).expect("a volume");
    assert!(volume.recovery().replayed == 1 && volume.for_request(tag(2)).was_carried_out());
    drop(volume);
    let volume = open(&path).expect("a volume");
    make(&volume, 3, "c").expect("an answer");
    volume.inner.core().state.image.forge_requests(7, Some(&bytes(1, &[(2, 3), (3, 1)])));
    drop(volume);
    let error = open(&path).expect_err("who is right?").to_string();
    assert!(error.contains("operation 4 is request 3 of mount 0000000000000007"), "{error}");
}

#[test]
fn a_flipped_byte_is_named_or_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.vol");
    format(&path, DomainChoice::Process);
    let volume = open(&path).expect("a volume");
    ["a", "b"].iter().zip(1..).for_each(|(name, request)| _ = make(&volume, request, name).expect("an answer"));
    volume.write_image().expect("a batch");
    drop(volume);
    let (content, value) = (std::fs::read(&path).expect("the file"), bytes(1, &[(1, 1), (2, 2)]));
    let places: Vec<usize> = (0..content.len() - value.len()).filter(|at| content[*at..].starts_with(&value)).collect();
    assert!(!places.is_empty(), "the image has the requests");
    let mut named = 0;
    // One byte of each number, and those around the value: its key, its length, its checksum.
    for at in places.iter().flat_map(|at| (at - 24..at + value.len() + 16).step_by(8)) {
        std::fs::write(&path, &content).expect("the file");
        let file = std::fs::File::options().write(true).open(&path).expect("the file");
        file.write_all_at(&[content[at] ^ 0x10], at as u64).expect("a byte");
        match open(&path) {
            Ok(volume) => {
                let is_there = |request| volume.for_request(tag(request)).was_carried_out();
                assert!(is_there(1) && is_there(2) && !is_there(3), "byte {at} of {places:?} is believed");
            }
            Err(_) => named += 1,
        }
    }
    assert!(named > 0);
}

type Device = Arc<FaultyStorage<Arc<SimulatedDisk>>>;

fn device(content: Vec<u8>) -> (Arc<SimulatedDisk>, Device) {
    let disk = Arc::new(SimulatedDisk::new(content));
    (Arc::clone(&disk), Arc::new(FaultyStorage::new(disk, FaultPlan::default())))
}

fn open_on(device: &Device) -> Result<Volume> {
    let open = || Arc::new(OpenFile::new(device)) as Arc<_>;
    Volume::over(&Store::over(&Pool::open_on_device(open, POOL_BYTES, &pool(DomainChoice::Block))?)?, &quiet())
}

/// Carries requests out, with syncs and batches of the image. The last request that was synced.
fn use_device(volume: &Volume) -> u64 {
    let mut synced = 0;
    for request in 1..=4 {
        let Ok(Answer::Done(..)) = make(volume, request, &format!("f{request}")) else { continue };
        if volume.sync().is_ok() {
            synced = request;
        }
        // An error is told by the next sync.
        _ = volume.write_image();
    }
    synced
}

/// Files and memory agree after each error of the device that comes once.
#[test]
fn a_device_error_that_comes_once_leaves_requests_and_files_alike() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.vol");
    format(&path, DomainChoice::Block);
    let content = std::fs::read(&path).expect("the file");
    let mut failures = 0;
    let none = FaultPlan::default();
    for number in (1_u64..).step_by(2) {
        let plans = [
            FaultPlan { fail_write: Some(Failing::once(number)), ..none },
            FaultPlan { fail_sync: Some(Failing::once(number)), ..none },
        ];
        let mut has_failed = false;
        for plan in plans {
            let (disk, device) = device(content.clone());
            let volume = open_on(&device).expect("a volume");
            device.arm(plan);
            let synced = use_device(&volume);
            has_failed |= synced < 4;
            failures += u32::from(synced < 4);
            drop(volume);
            for survives in [false, true] {
                let (_, reborn) = self::device(disk.power_cut(|_| survives));
                let volume = open_on(&reborn).expect("it opens again");
                for request in 1..=4 {
                    let is_there = volume.open_file(&format!("/f{request}")).is_ok();
                    let was_carried_out = volume.for_request(tag(request)).was_carried_out();
                    assert_eq!(is_there, was_carried_out, "{plan:?}: request {request}");
                    assert!(is_there || request > synced, "{plan:?}: request {request} was synced");
                }
            }
        }
        if !has_failed {
            break;
        }
    }
    assert!(failures > 2, "{failures}");
}

#[test]
fn a_read_that_fails_once_is_an_error_of_the_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.vol");
    format(&path, DomainChoice::Block);
    let (disk, device) = device(std::fs::read(&path).expect("the file"));
    assert_eq!(use_device(&open_on(&device).expect("a volume")), 4);
    let content = disk.content();
    let (mut failures, mut number) = (0, 1);
    loop {
        let (_, device) = self::device(content.clone());
        device.arm(FaultPlan { fail_read: Some(Failing::once(number)), ..FaultPlan::default() });
        match open_on(&device) {
            Ok(volume) => {
                let was_carried_out = |request| volume.for_request(tag(request)).was_carried_out();
                assert!((1..=4).all(was_carried_out) && !was_carried_out(5), "read {number}");
                break;
            }
            Err(error) => {
                assert!(error.to_string().contains("read"), "{error}");
                failures += 1;
            }
        }
        number *= 2;
    }
    assert!(failures > 0);
}
