//! Reports as a whole: well-formed, self-contained, escaped, and robust against odd data.

mod wellformed;

use lodestone_report::figure::{Figure, Unit};
use lodestone_report::html::{HtmlReport, Outcome, Table};
use lodestone_report::provenance::Provenance;

const HOSTILE: &str = "</title><script src=\"http://evil.example/x.js\">alert('&')</script>\u{0}";

fn figures(name: &str) -> Vec<Figure> {
    let points = [(1.0, 10.0), (10.0, 2_000.0), (100.0, 30.0)];
    vec![
        Figure::line(name).x_axis(name, Unit::Count).y_axis(name, Unit::Count).log_x().log_y().series(name, points),
        Figure::distribution(name).x_axis(name, Unit::Nanoseconds).series(name, [(1.0, 0.5), (9.0, 1.0)]).note(name),
        Figure::bars(name, [name, "b", "c"]).bar_series(name, [1.0, 2.0, 3.0]).bar_series("x", [4.0, f64::NAN]),
        Figure::histogram(name).x_axis(name, Unit::Bytes).series(name, points).series("", [(0.0, 0.0)]),
    ]
}

fn page(text: &str) -> String {
    let mut report = HtmlReport::new(text)
        .lead(text)
        .provenance(Provenance::new().with(text, text))
        .heading(text)
        .paragraph(text)
        .tiles([(text, text)])
        .verdict(Outcome::Fail, text)
        .table(Table::new([text, "n"]).caption(text).row([text, "1"]))
        .heading("second")
        .heading("third")
        .listing(text);
    for figure in figures(text) {
        report = report.figure(figure);
    }
    report.to_html()
}

#[test]
fn pages_and_figures_are_well_formed() {
    for text in ["plain", HOSTILE, "", "a & b < c > d \"e\" 'f'"] {
        assert_eq!(wellformed::check(&page(text)), Ok(()), "{text}");
        for figure in figures(text) {
            assert_eq!(wellformed::check(&figure.to_svg()), Ok(()), "{text}");
        }
    }
}

#[test]
fn nothing_outside_is_referred_to() {
    let html = page("plain");
    for reference in ["http:", "https:", "src=", "url(", "@import", "<link", "<script", "<iframe", "<img", "//"] {
        assert!(!html.contains(reference), "{reference}");
    }
    for (at, _) in html.match_indices("href=\"") {
        assert!(html[at..].starts_with("href=\"#"), "{:.40}", &html[at..]);
    }
    // A separate file needs the name of its language, which is an address that is never opened.
    let svg = figures("plain")[0].to_svg();
    assert_eq!(svg.matches("http").count(), 1);
    assert!(svg.contains("xmlns=\"http://www.w3.org/2000/svg\""));
}

#[test]
fn hostile_text_stays_text() {
    let html = page(HOSTILE);
    assert!(!html.contains("<script"));
    assert!(html.contains("&lt;script"));
}

#[test]
fn figures_have_accessible_names_and_unique_ids() {
    let html = page("plain");
    assert_eq!(html.matches("role=\"img\"").count(), 4);
    assert_eq!(html.matches("<desc ").count(), 4);
    let ids: Vec<&str> = html.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), ids.len());
    for reference in html.split("aria-labelledby=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(reference.split(' ').all(|id| ids.contains(&id)), "{reference}");
    }
}

#[test]
fn odd_data_leaves_no_odd_number_in_a_figure() {
    let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -5.0, 1e-300, 1e300, f64::MAX, 1.0];
    let all = odd.iter().flat_map(|x| odd.iter().map(|y| (*x, *y)));
    for figure in [
        Figure::line("l").series("s", all.clone()),
        Figure::line("l").log_x().log_y().series("s", all.clone()),
        Figure::distribution("d").series("s", all.clone()),
        Figure::histogram("h").log_x().series("s", all),
        Figure::bars("b", ["a"; 10]).bar_series("s", odd),
        Figure::bars("b", ["a"; 10]).log_y().bar_series("s", odd),
    ] {
        let svg = figure.to_svg();
        assert_eq!(wellformed::check(&svg), Ok(()));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}

#[test]
fn a_figure_without_data_says_so() {
    for figure in [
        Figure::line("nothing"),
        Figure::line("nothing").series("s", []),
        Figure::line("nothing").series("s", [(f64::NAN, 1.0)]),
        Figure::line("nothing").log_y().series("s", [(1.0, -1.0)]),
        Figure::distribution("nothing").series("s", []),
        Figure::bars("nothing", [""; 0]).bar_series("s", [1.0]),
        Figure::histogram("nothing"),
    ] {
        assert!(figure.to_svg().contains("no data"));
    }
    assert!(!figures("x")[0].to_svg().contains("no data"));
}

#[test]
fn values_lie_where_they_belong() {
    let svg = Figure::bars("b", ["a", "b"]).bar_series("s", [10.0, 20.0]).to_svg();
    let heights: Vec<f64> = svg
        .split("<rect class=\"f0\"")
        .skip(2)
        .filter_map(|rest| rest.split("height=\"").nth(1)?.split('"').next()?.parse().ok())
        .collect();
    assert_eq!(heights.len(), 2);
    assert!((heights[1] / heights[0] - 2.0).abs() < 0.01, "{heights:?}");
}

#[test]
fn a_report_is_written_whole_or_refused_by_name() {
    let folder = std::env::temp_dir().join(format!("lodestone-report-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("report.html");
    let report = HtmlReport::new("title");
    report.write_to(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), report.to_html());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    std::fs::remove_dir_all(&folder).unwrap();
    let error = report.write_to(&path).unwrap_err().to_string();
    assert!(error.contains("report.html"), "{error}");
}
