//! Step 8: a volume with replicas, whose nodes are killed while programs write files.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use lodestone_fs::cluster::{Cluster, ClusterOptions};
use lodestone_fs::{Result as VolumeResult, Volume};
use lodestone_fs_fuse::{MountOptions, Mounted};
use lodestone_pmem::PoolOptions;

use super::story::Story;

const VOLUME_BYTES: u64 = 32 << 20;
const FILES: u64 = 24;

/// Where the files go: through a mount, or by the library.
struct Files<'c> {
    cluster: &'c Cluster,
    mount: Option<Mounted>,
}

fn content(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(1500)
}

impl Files<'_> {
    /// Writes a file, and waits until it is durable.
    fn write(&self, number: u64) -> Result<()> {
        let name = format!("letter-{number}");
        if let Some(mount) = &self.mount {
            let mut file = std::fs::File::create(mount.point().join(name))?;
            std::io::Write::write_all(&mut file, &content(number))?;
            return Ok(file.sync_all()?);
        }
        let write = |volume: &Volume| -> VolumeResult<()> {
            volume.create(&format!("/{name}"))?.write_at(0, &content(number))?.sync()
        };
        Ok(write(&self.cluster.volume()?)?)
    }

    fn is_whole(&self, number: u64) -> Result<bool> {
        let name = format!("letter-{number}");
        Ok(match &self.mount {
            Some(mount) => std::fs::read(mount.point().join(name))? == content(number),
            None => self.cluster.volume()?.open_file(&format!("/{name}"))?.read_all()? == content(number),
        })
    }

    fn are_whole(&self) -> Result<bool> {
        (0..FILES).try_fold(true, |all, number| Ok(all & self.is_whole(number)?))
    }
}

/// Writes files while a replica and then the metadata node are killed.
pub fn keep(story: &mut Story<'_>, folder: &Path) -> Result<()> {
    story.step(
        "Keep files at three replicas, and kill nodes",
        "A volume is a file system in one file. With --try 3 it has three replicas of its pages and a standby, all in one \
         process, so that nothing has to be set up. An fsync waits for two replicas and for the standby. Here a replica \
         is killed while files are written, and then the node that has the metadata.",
    )?;
    let path = folder.join("letters.vol");
    Volume::format(&path, VOLUME_BYTES)?;
    story.command(&format!("lodestone fs format {} --size 32MiB", path.display()))?;
    story.command(&format!("lodestone fs mount {} FOLDER --try 3", path.display()))?;
    let cluster = Cluster::open(&path, &PoolOptions::default(), &ClusterOptions::default())?;
    let point = folder.join("letters");
    std::fs::create_dir(&point)?;
    let mount = lodestone_fs_fuse::mount(cluster.source(), &point, &MountOptions::default());
    if let Err(error) = &mount {
        story.say(&format!("Nothing can be mounted here ({error}), so the files are written by the library."))?;
    }
    let is_mounted = mount.is_ok();
    let files = Files { cluster: &cluster, mount: mount.ok() };
    for number in 0..FILES {
        files.write(number)?;
        if number == FILES / 3 {
            story.command(&format!("lodestone fs stop {} 101", path.display()))?;
            cluster.stop_node(101)?;
        }
    }
    story.expect(files.are_whole()?, "a replica was killed, writing went on, and every file is whole")?;
    story.command(&format!("lodestone fs stop {} 1", path.display()))?;
    cluster.stop_node(1)?;
    let began = Instant::now();
    let are_whole = files.are_whole()?;
    let takeover = began.elapsed();
    story.say(&format!("The standby answered the first read after {} ms, the lease included.", takeover.as_millis()))?;
    story.expect(are_whole, "the metadata node was killed, the standby took over, and every file is whole")?;
    if let Some(mount) = &files.mount {
        mount.unmount()?;
    }
    story.data(&serde_json::json!({
        "event": "files", "mounted": is_mounted, "files": FILES, "takeover_ms": takeover.as_secs_f64() * 1000.0,
    }))?;
    Ok(())
}
