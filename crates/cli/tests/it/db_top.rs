//! `lodestone db top`: a view of a database that another process has open.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::Place;
use lodestone_engine::{Database, DatabaseOptions, PublishOptions};
use serde_json::Value;

/// A place with an empty table `t` in `a.pool`.
fn with_table() -> Place {
    let place = Place::with_pool("16MiB");
    place.run(["db", "create", "a.pool", "t (k u64, v text) key (k)", "--log-bytes", "1MiB"]).ok();
    place
}

/// An import that publishes, and the end of its pipe. It has `a.pool` open until the pipe is closed.
struct Import {
    child: Child,
    input: Option<ChildStdin>,
}

impl Import {
    fn begin(place: &Place, publish: &str) -> Self {
        let args = ["db", "import", "a.pool", "t", "-", "--batch", "1", publish];
        let mut command = place.command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("run");
        let input = child.stdin.take();
        Self { child, input }
    }

    fn put(&mut self, key: u64) {
        writeln!(self.input.as_mut().expect("a pipe"), "{{\"k\":{key},\"v\":\"x\"}}").expect("it reads on");
    }

    fn process(&self) -> String {
        format!("process {}", self.child.id())
    }

    /// Closes the pipe, and waits for the end of the import.
    fn end(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().expect("wait").success());
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        // A test that fails must not leave it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A view of `a.pool` that has shown its first interval.
fn view(place: &Place) -> Child {
    let mut command = place.command(["db", "top", "a.pool", "--interval", "10ms"]);
    let mut top = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("run");
    let mut header = [0; 16];
    top.stdout.as_mut().expect("a pipe").read_exact(&mut header).expect("a line");
    top
}

/// Waits until `is_so`.
#[track_caller]
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "it takes too long");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn figures_of_another_process_are_seen_as_they_change() {
    let place = with_table();
    place.run(["db", "top", "a.pool"]).fails_with(&["a.pool.stats", "no process publishes", "--publish"]);
    let mut import = Import::begin(&place, "--publish");
    wait_until(|| place.path("a.pool.stats").exists());
    let (objects, lines) = thread::scope(|scope| {
        let top = scope.spawn(|| place.json(["db", "top", "a.pool", "--count", "2", "--interval", "50ms"]));
        let lines = scope.spawn(|| place.run(["db", "top", "a.pool", "--count", "2", "--interval", "50ms"]));
        let mut key = 0;
        while !(top.is_finished() && lines.is_finished()) {
            import.put(key);
            key += 1;
            thread::sleep(Duration::from_millis(2));
        }
        (top.join().expect("objects"), lines.join().expect("lines").ok())
    });
    let [first, second] = &objects[..] else { panic!("two intervals: {objects:?}") };
    let commits = |object: &Value| object["figures"]["commits"].as_u64().expect("a number");
    assert!(commits(second) > commits(first), "{objects:?}");
    assert!(
        second["commits_per_s"].as_f64() > Some(1.0) && second["log_bytes_per_s"].as_f64() > Some(64.0),
        "{second}"
    );
    assert_eq!(second["process"], import.child.id());
    assert_eq!((&second["database"], &second["checkpoint_trouble"]), (&"tables".into(), &Value::Null));
    assert!(second["pool"].as_str().is_some_and(|pool| pool.ends_with("/a.pool")), "{second}");
    let lines: Vec<&str> = lines.lines().collect();
    assert!(lines.len() == 3 && lines[0].contains("commits/s"), "{lines:?}");
    let text = place.run(["db", "top", "--file", "a.pool.stats", "--prometheus"]).ok();
    assert!(text.contains("lodestone_db_commits_total{database=\"tables\"} "), "{text}");
    place.run(["db", "top", "a.pool", "--prometheus", "--json"]).fails_with(&["choose one"]);
    import.end();
    assert!(!place.path("a.pool.stats").exists());
    place.run(["db", "top", "a.pool"]).fails_with(&["no process publishes"]);
}

#[test]
fn a_process_that_was_killed_is_named_and_the_next_one_takes_its_file() {
    let place = with_table();
    let mut import = Import::begin(&place, "--publish=figures");
    wait_until(|| place.path("figures").exists());
    let process = import.process();
    import.child.kill().expect("kill");
    import.child.wait().expect("wait");
    place.run(["db", "top", "--file", "figures"]).fails_with(&["figures: stale: written", &process, "is gone"]);
    let next = Import::begin(&place, "--publish=figures");
    let number = next.child.id().to_string();
    wait_until(|| place.read("figures").contains(&number));
    place.run(["db", "top", "--file", "figures", "--prometheus"]).ok();
    next.end();
    // A file of another kind stays as it is.
    place.write("figures", "mine");
    let args = ["db", "import", "a.pool", "t", "-", "--publish=figures"];
    place.run(args).fails_with(&["figures cannot be published", "choose another path"]);
    assert_eq!(place.read("figures"), "mine");
}

#[test]
fn the_view_ends_in_order_when_the_database_is_closed_and_as_a_failure_when_its_process_dies() {
    let place = with_table();
    let mut import = Import::begin(&place, "--publish");
    wait_until(|| place.path("a.pool.stats").exists());
    let process = import.process();
    thread::scope(|scope| {
        let top = scope.spawn(|| place.run(["db", "top", "a.pool", "--interval", "10ms"]));
        thread::sleep(Duration::from_millis(100));
        import.child.kill().expect("kill");
        top.join().expect("an end").fails_with(&["stale: written", &process, "is gone"]);
    });
    // In this process, with a short period, so that the end is noticed soon.
    let database = Database::open_with(place.path("a.pool"), &DatabaseOptions::default()).expect("a database");
    let every = Duration::from_millis(10);
    database.publish(&PublishOptions { every, ..PublishOptions::default() }).expect("a file");
    let top = view(&place);
    drop(database);
    let done = top.wait_with_output().expect("an end");
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && text.contains("the database was closed"), "{text}");
}

#[test]
fn damage_and_ctrl_c_are_told() {
    let place = with_table();
    let import = Import::begin(&place, "--publish");
    let file = place.path("a.pool.stats");
    wait_until(|| file.exists());
    let text = place.read("a.pool.stats");
    for (content, part) in [
        ("", "damaged"),
        ("{\"lodestone_db_stats\":1}", "missing field `process`"),
        (&text[..text.len() / 2], "damaged"),
        ("{\"lodestone_db_stats\":9}", "version 9"),
    ] {
        place.write("copy", content);
        place.run(["db", "top", "--file", "copy"]).fails_with(&["copy: ", part]);
    }
    place.run(["db", "top", "--file", "."]).fails_with(&["no regular file"]);
    let top = view(&place);
    let number = i32::try_from(top.id()).expect("an id");
    let process = rustix::process::Pid::from_raw(number).expect("an id");
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("a signal");
    let done = top.wait_with_output().expect("an end");
    assert_eq!((done.status.code(), done.status.signal()), (Some(130), None));
    assert!(String::from_utf8_lossy(&done.stderr).contains("the database goes on"));
    import.end();
}
