//! The page of `lodestone media probe` in a real browser. Every figure is present and drawn, in light and in dark, and
//! the browser reports no problem.
//!
//! A script that the test adds to a copy of the page measures every figure. It writes its measurements into the
//! title-like element that `--dump-dom` prints. The page itself has no script.

use std::process::Command;

use crate::common::Place;

/// `tools/setup.sh test` installs it.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Figures of a full run on a profile with several threads. They are paper 2's Figures 1 to 14 (8, 9 and 10 hold reads
/// and writes), and those of instructions (2), nodes (2) and DRAM (2).
const FIGURES: [&str; 21] = [
    "Figure 8)",
    "Figure 9)",
    "Figure 1)",
    "Figure 2)",
    "Figure 3)",
    "Figure 4)",
    "Figure 6)",
    "Figure 7)",
    "Latency of random reads by threads (as paper 2, Figure 10)",
    "Latency of random writes (streamed) by threads (as paper 2, Figure 10)",
    "Figure 5)",
    "streaming stores, random",
    "streaming stores, sequential",
    "Figure 11)",
    "Figure 12)",
    "Figure 13)",
    "Figure 14)",
    "Random reads from the near and from the far node",
    "Random writes (streamed) from the near and from the far node",
    "Table 7)",
    "Table 8)",
];

/// Measures each figure's title, its size on the screen, and its lines' lengths.
const MEASURE: &str = r#"<script>
window.onerror = (message) => document.body.setAttribute('data-error', message);
window.onload = () => {
  const found = [...document.querySelectorAll('figure svg')].map((svg) => {
    const box = svg.getBoundingClientRect();
    const lines = [...svg.querySelectorAll('path.data')].map((path) => Math.round(path.getTotalLength()));
    const ink = getComputedStyle(svg.querySelector('text')).fill;
    return [svg.querySelector('title').textContent, Math.round(box.width), Math.round(box.height), lines.join(' '), ink].join('|');
  });
  const mark = document.createElement('pre');
  mark.id = 'measured';
  mark.textContent = found.join('\n');
  document.body.append(mark);
};
</script></body>"#;

fn browser() -> &'static str {
    let works = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|done| done.status.success());
    BROWSERS.iter().find(works).expect("a headless browser is needed: `tools/setup.sh test` installs chromium")
}

/// Opens the page. Returns the measurements, line by line.
fn open(place: &Place, page: &str, dark: bool) -> Vec<String> {
    let profile = place.path(if dark { "dark" } else { "light" });
    let mut command = Command::new(browser());
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"])
        .args(["--virtual-time-budget=5000", "--timeout=60000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()));
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    let done = command.arg(format!("file://{}", place.path(page).display())).output().expect("run the browser");
    let (dom, log) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let complaints: Vec<&str> = log.lines().filter(|line| line.contains(":CONSOLE(")).collect();
    assert!(complaints.is_empty(), "the browser complains: {complaints:?}");
    assert!(!dom.contains("<body data-error"), "a script failed: {dom}");
    let (_, measured) = dom.split_once("<pre id=\"measured\">").unwrap_or_else(|| panic!("nothing measured: {log}"));
    measured.split("</pre>").next().unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn every_figure_is_drawn_in_a_browser() {
    let place = Place::new();
    place
        .run(
            ["media", "probe", "--profile", "optane", "--quick", "--size", "64MiB", "--threads", "4"]
                .into_iter()
                .chain(["--html", "page.html", "--quiet"]),
        )
        .ok();
    let page = place.read("page.html");
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href=\"http"), "self-contained");
    // The page forbids scripts. The measuring one is let in.
    let policy = "default-src 'none'; style-src 'unsafe-inline'";
    assert!(page.contains(policy));
    let with_script =
        page.replace(policy, &format!("{policy}; script-src 'unsafe-inline'")).replace("</body>", MEASURE);
    place.write("measured.html", with_script);
    let mut inks = Vec::new();
    for dark in [false, true] {
        let figures = open(&place, "measured.html", dark);
        assert_eq!(figures.len(), FIGURES.len(), "{figures:#?}");
        for (figure, title) in figures.iter().zip(FIGURES) {
            let parts: Vec<&str> = figure.split('|').collect();
            let [name, width, height, lines, ink] = parts[..] else { panic!("{figure}") };
            assert!(name.contains(title), "`{title}` in {name}");
            let size = |text: &str| text.parse::<u32>().expect("a number");
            assert!(size(width) > 400 && size(height) > 200, "{figure}");
            assert!(!lines.is_empty() && lines.split(' ').all(|length| size(length) > 20), "{figure}");
            inks.push(ink.to_owned());
        }
    }
    inks.sort();
    inks.dedup();
    assert_eq!(inks.len(), 2, "dark text on light and light text on dark: {inks:?}");
}
