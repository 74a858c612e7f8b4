//! Use of a volume's pool by metadata: all that is allocated there, without the pages of files.

use lodestone_store::Store;
use serde::{Deserialize, Serialize};

use crate::data::Data;
use crate::error::Result;
use crate::image::Image;
use crate::layout::Super;

/// Use of the pool by metadata. It is that of the image, which follows the operations in batches.
///
/// ```
/// use lodestone_fs::Volume;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("notes.vol");
///
/// Volume::format(&path, 16 << 20)?;
/// let volume = Volume::open(&path)?;
/// volume.create("/a")?.write_at(0, b"hello")?.sync()?;
/// volume.write_image()?;
/// let metadata = volume.metadata()?;
/// assert_eq!(metadata.files, 2); // the file, and its folder
/// assert!(metadata.image_bytes <= metadata.used_bytes);
/// # Ok::<(), lodestone_fs::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataUsage {
    /// Files and folders.
    pub files: u64,
    /// Bytes of the pool that are in use, without the pages of files: image, log, and checksums of pages.
    pub used_bytes: u64,
    /// Bytes of the image: rows of files, entries of folders, runs of pages, attributes, and tables of free pages.
    pub image_bytes: u64,
    /// The same for each file.
    pub bytes_per_file: u64,
    /// Bytes of the pool that nothing uses: for new pages, and for metadata.
    pub free_bytes: u64,
    /// Bytes of the pools beside this one, with replicas: the rings and logs of the nodes with metadata in this
    /// process, and its registry. They have their whole size from the beginning. The image of a standby is not in it.
    #[serde(default)]
    pub node_bytes: u64,
}

impl MetadataUsage {
    pub(crate) fn of(store: &Store, image: &Image, data: &Data, layout: &Super) -> Result<Self> {
        let (heap, files) = (store.heap(), image.head()?.files);
        let usage = heap.usage();
        let block = |at| heap.block_bytes(at).unwrap_or_default();
        let areas = data.blocks();
        let pages = lodestone_width::to_u64(areas.len()) * layout.area_pages * layout.page_bytes;
        let area_bytes: u64 = areas.into_iter().map(block).sum();
        let others = area_bytes + block(layout.ring_at);
        let image_bytes = usage.bytes_used.saturating_sub(others);
        Ok(Self {
            files,
            used_bytes: usage.bytes_used.saturating_sub(pages),
            image_bytes,
            bytes_per_file: image_bytes / files.max(1),
            free_bytes: usage.chunks_free * usage.chunk_bytes,
            node_bytes: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Volume, VolumeOptions};

    #[test]
    fn files_are_counted_and_their_pages_are_not() {
        let (_folder, path, pool) = crate::cluster::volume_for_tests();
        let volume = Volume::open_with(&path, &pool, &VolumeOptions::default()).expect("a volume");
        let usage = || {
            volume.write_image().expect("a batch");
            volume.metadata().expect("it is known")
        };
        let empty = usage();
        assert_eq!((empty.files, empty.bytes_per_file), (1, empty.image_bytes));
        assert!(empty.used_bytes > empty.image_bytes && empty.free_bytes > 0, "{empty:?}");
        // Pages are no metadata. Their checksums are, and there is little in the image.
        let file = volume.create("/large").expect("a file");
        file.write_at(0, &vec![7; 1 << 20]).expect("a write").sync().expect("a sync");
        let large = usage();
        assert_eq!(large.files, 2);
        assert!(large.image_bytes < empty.image_bytes + (256 << 10), "{empty:?} {large:?}");
        assert!(large.used_bytes < empty.used_bytes + (512 << 10), "{empty:?} {large:?}");
        assert!(large.free_bytes < empty.free_bytes - (512 << 10), "{empty:?} {large:?}");
        for number in 0..3000 {
            volume.create(&format!("/a-file-{number}")).expect("a file");
        }
        let many = usage();
        assert_eq!(many.files, 3002);
        let each = (many.image_bytes - large.image_bytes) / 3000;
        assert!((200..2000).contains(&each), "{each} bytes for each file: {large:?} {many:?}");
        assert_eq!(many.bytes_per_file, many.image_bytes / 3002);
    }
}
