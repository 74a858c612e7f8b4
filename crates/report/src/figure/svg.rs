//! Draws a [`Figure`] as SVG.
//!
//! 1. Fix the frame: title, legend rows, axis labels. The rest is the plot area.
//! 2. Make the two scales from all values that can be drawn.
//! 3. Draw grid and ticks, then the data, then the legend.
//!
//! Colours come from classes in [`STYLE`], so that one figure follows the light or dark scheme of its reader.

use std::fmt::Write;

use crate::escape::escape;
use crate::figure::scale::Scale;
use crate::figure::{Figure, FigureKind, Series};

/// Style of figures: part of a page's style sheet, or inside a figure's own file.
pub const STYLE: &str = "\
.fig{font-family:system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;font-size:12px;--ink:#1f2328;--soft:#59636e;\
--grid:#dfe3e8;--c0:#0b62b8;--c1:#c2410c;--c2:#0f766e;--c3:#8b2fa8;--c4:#946200;--c5:#b5175e;--c6:#4d5b6a;--c7:#3d7a1f}
@media (prefers-color-scheme:dark){.fig{--ink:#e6edf3;--soft:#9aa7b4;--grid:#303842;--c0:#6cb2ff;--c1:#ff9a62;\
--c2:#4fd1c0;--c3:#d59cf0;--c4:#e3b341;--c5:#ff8ab8;--c6:#a9b8c8;--c7:#8fd46a}}
.fig text{fill:var(--ink)} .fig .tick{fill:var(--soft);font-size:11px} .fig .title{font-size:15px;font-weight:600}
.fig .grid{stroke:var(--grid);stroke-width:1} .fig .axis{stroke:var(--soft);stroke-width:1}
.fig .data{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.fig .empty{fill:var(--soft);font-size:14px} .fig .value{font-size:10.5px;fill:var(--soft)}
.fig .s0{stroke:var(--c0)} .fig .s1{stroke:var(--c1)} .fig .s2{stroke:var(--c2)} .fig .s3{stroke:var(--c3)}
.fig .s4{stroke:var(--c4)} .fig .s5{stroke:var(--c5)} .fig .s6{stroke:var(--c6)} .fig .s7{stroke:var(--c7)}
.fig .f0{fill:var(--c0)} .fig .f1{fill:var(--c1)} .fig .f2{fill:var(--c2)} .fig .f3{fill:var(--c3)}
.fig .f4{fill:var(--c4)} .fig .f5{fill:var(--c5)} .fig .f6{fill:var(--c6)} .fig .f7{fill:var(--c7)}
";

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 400.0;
const COLOURS: usize = 8;
const DASHES: [&str; 4] = ["", "7 4", "2 4", "9 3 2 3"];
/// Points of a series above which markers would only smear.
const MARKERS_MAX: usize = 24;
/// Bars above which values over them would overlap.
const BAR_VALUES_MAX: usize = 16;
const BAR_WIDTH_MAX: f64 = 90.0;
/// Characters of a category's name. Longer names are cut; the table of data has them whole.
const CATEGORY_MAX: usize = 26;
const LEGEND_ROW: f64 = 20.0;
/// Mean width of a character at the size of legend and ticks.
const CHARACTER: f64 = 6.8;

/// The place for which a figure is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    File,
    Page,
}

/// The plot area and the scales.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: Option<Scale>,
    y: Scale,
}

impl Frame {
    fn across(&self, along: f64) -> f64 {
        self.left + along * (self.right - self.left)
    }

    fn up(&self, along: f64) -> f64 {
        self.bottom - along * (self.bottom - self.top)
    }

    fn point(&self, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        let x = self.x.as_ref()?.position(x)?;
        Some((self.across(x), self.up(self.y.position(y)?)))
    }
}

pub(super) fn render(figure: &Figure, id: &str, place: Place) -> String {
    let mut out = String::with_capacity(8_192);
    let namespace = if place == Place::File { " xmlns=\"http://www.w3.org/2000/svg\"" } else { "" };
    put(
        &mut out,
        format_args!(
            "<svg{namespace} class=\"fig\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-labelledby=\"{id}-title {id}-text\">\n<title id=\"{id}-title\">{}</title>\n<desc id=\"{id}-text\">{}</desc>\n",
            escape(&figure.title),
            escape(&describe(figure)),
        ),
    );
    if place == Place::File {
        put(&mut out, format_args!("<style>\n{STYLE}</style>\n"));
    }
    put(&mut out, format_args!("<text class=\"title\" x=\"12\" y=\"22\">{}</text>\n", escape(&figure.title)));
    let legend_bottom = draw_legend(&mut out, figure);
    match frame_of(figure, legend_bottom + 16.0) {
        Some(frame) => {
            draw_axes(&mut out, figure, &frame);
            draw_data(&mut out, figure, &frame);
        }
        None => put(
            &mut out,
            format_args!(
                "<text class=\"empty\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">no data</text>\n",
                WIDTH / 2.0,
                HEIGHT / 2.0
            ),
        ),
    }
    out.push_str("</svg>\n");
    out
}

/// Writing to a string cannot fail.
fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok());
}

fn describe(figure: &Figure) -> String {
    let kind = match figure.kind {
        FigureKind::Line => "Line plot",
        FigureKind::Distribution => "Distribution function",
        FigureKind::Bar => "Bar chart",
        FigureKind::Histogram => "Histogram",
    };
    let names: Vec<&str> = figure.series.iter().map(|series| series.name.as_str()).collect();
    let x = if figure.kind == FigureKind::Bar { figure.categories.join(", ") } else { figure.x.label.clone() };
    format!("{kind} of {} against {x}. Series: {}. {}", figure.y.label, names.join(", "), figure.note)
}

/// Draws the legend below the title and returns its lower end. A lone series without a name needs no legend.
fn draw_legend(out: &mut String, figure: &Figure) -> f64 {
    let mut y = 44.0;
    let mut x = 12.0;
    if figure.series.iter().all(|series| series.name.is_empty()) {
        return y - LEGEND_ROW;
    }
    for (index, series) in figure.series.iter().enumerate() {
        let filled = matches!(figure.kind, FigureKind::Bar | FigureKind::Histogram);
        let sample_width = if filled { 20.0 } else { 34.0 };
        let width = sample_width + CHARACTER * series.name.chars().count() as f64 + 18.0;
        if x > 12.0 && x + width > WIDTH {
            x = 12.0;
            y += LEGEND_ROW;
        }
        let colour = index % COLOURS;
        if filled {
            put(
                out,
                format_args!("<rect class=\"f{colour}\" x=\"{x}\" y=\"{}\" width=\"14\" height=\"10\"/>\n", y - 9.0),
            );
        } else {
            let dash = dash_of(index);
            put(out, format_args!("<path class=\"data s{colour}\"{dash} d=\"M{x} {}h26\"/>\n", y - 4.0));
            if figure.kind == FigureKind::Line {
                draw_marker(out, index, (x + 13.0, y - 4.0));
            }
        }
        put(out, format_args!("<text x=\"{:.1}\" y=\"{y}\">{}</text>\n", x + sample_width, escape(&series.name)));
        x += width;
    }
    y
}

fn dash_of(index: usize) -> String {
    // The ninth series has the colour of the first, so it has another dash.
    let dash = DASHES[(index + index / COLOURS) % DASHES.len()];
    if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") }
}

fn frame_of(figure: &Figure, top: f64) -> Option<Frame> {
    let xs = || figure.series.iter().flat_map(|series| series.points.iter().map(|point| point.0));
    let ys = || figure.series.iter().flat_map(|series| series.points.iter().map(|point| point.1));
    let from_zero = figure.kind != FigureKind::Line || figure.y.from_zero;
    let y = match figure.kind {
        FigureKind::Distribution => {
            Scale::over(ys(), false, true, figure.y.unit)?;
            Scale::fraction()
        }
        _ => Scale::over(ys(), figure.y.logarithmic, from_zero, figure.y.unit)?,
    };
    let x = match figure.kind {
        FigureKind::Bar if figure.categories.is_empty() => return None,
        FigureKind::Bar => None,
        _ => Some(Scale::over(xs(), figure.x.logarithmic, false, figure.x.unit)?),
    };
    let tick_width = y.ticks.iter().map(|tick| y.text(*tick).chars().count()).max().unwrap_or(0);
    let left = 34.0 + CHARACTER * tick_width as f64;
    let label_room = if categories_turn(figure, WIDTH - 18.0 - left) { 74.0 } else { 0.0 };
    let title_room = if figure.x.label.is_empty() { 30.0 } else { 50.0 };
    Some(Frame { left, right: WIDTH - 18.0, top, bottom: HEIGHT - title_room - label_room, x, y })
}

/// Whether the names of categories are too long to fit side by side.
fn categories_turn(figure: &Figure, width: f64) -> bool {
    let longest = figure.categories.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    longest as f64 * CHARACTER > width / figure.categories.len().max(1) as f64
}

fn draw_axes(out: &mut String, figure: &Figure, frame: &Frame) {
    for tick in &frame.y.ticks {
        let Some(along) = frame.y.position(*tick) else { continue };
        let y = frame.up(along);
        put(
            out,
            format_args!(
                "<path class=\"grid\" d=\"M{:.1} {y:.1}H{:.1}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>\n",
                frame.left,
                frame.right,
                frame.left - 6.0,
                y + 4.0,
                escape(&frame.y.text(*tick))
            ),
        );
    }
    if let Some(scale) = &frame.x {
        for tick in &scale.ticks {
            let Some(along) = scale.position(*tick) else { continue };
            let x = frame.across(along);
            put(
                out,
                format_args!(
                    "<path class=\"grid\" d=\"M{x:.1} {:.1}V{:.1}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" \
                     text-anchor=\"middle\">{}</text>\n",
                    frame.top,
                    frame.bottom,
                    frame.bottom + 16.0,
                    escape(&scale.text(*tick))
                ),
            );
        }
    } else {
        draw_categories(out, figure, frame);
    }
    let base = frame.up(frame.y.base());
    put(
        out,
        format_args!(
            "<path class=\"axis\" fill=\"none\" d=\"M{:.1} {:.1}V{:.1}M{:.1} {base:.1}H{:.1}\"/>\n",
            frame.left, frame.top, frame.bottom, frame.left, frame.right
        ),
    );
    let middle = f64::midpoint(frame.top, frame.bottom);
    put(
        out,
        format_args!(
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(16 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
            f64::midpoint(frame.left, frame.right),
            HEIGHT - 12.0,
            escape(&axis_title(&figure.x.label, figure.x.logarithmic && frame.x.is_some())),
            escape(&axis_title(&figure.y.label, figure.y.logarithmic)),
        ),
    );
}

fn axis_title(label: &str, logarithmic: bool) -> String {
    if logarithmic { format!("{label} (log scale)") } else { label.into() }
}

fn draw_categories(out: &mut String, figure: &Figure, frame: &Frame) {
    let slot = (frame.right - frame.left) / figure.categories.len() as f64;
    let turn = categories_turn(figure, frame.right - frame.left);
    for (index, name) in figure.categories.iter().enumerate() {
        let (x, y) = (frame.left + slot * (index as f64 + 0.5), frame.bottom + 16.0);
        let place = if turn {
            format!("transform=\"translate({x:.1} {y:.1}) rotate(-35)\" text-anchor=\"end\"")
        } else {
            format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\"")
        };
        put(out, format_args!("<text class=\"tick\" {place}>{}</text>\n", escape(&shortened(name))));
    }
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= CATEGORY_MAX {
        return name.into();
    }
    name.chars().take(CATEGORY_MAX - 2).chain("..".chars()).collect()
}

fn draw_data(out: &mut String, figure: &Figure, frame: &Frame) {
    for (index, series) in figure.series.iter().enumerate() {
        match figure.kind {
            FigureKind::Line => draw_line(out, index, series, frame, false),
            FigureKind::Distribution => draw_line(out, index, series, frame, true),
            FigureKind::Bar => draw_bars(out, index, series, figure, frame),
            FigureKind::Histogram => draw_histogram(out, index, series, frame, figure.series.len()),
        }
    }
}

fn draw_line(out: &mut String, index: usize, series: &Series, frame: &Frame, steps: bool) {
    let mut path = String::new();
    let mut pen_down = false;
    let mut markers = Vec::new();
    for point in &series.points {
        let Some((x, y)) = frame.point(*point) else {
            pen_down = false;
            continue;
        };
        match (pen_down, steps) {
            (false, _) => put(&mut path, format_args!("M{x:.1} {y:.1}")),
            (true, false) => put(&mut path, format_args!("L{x:.1} {y:.1}")),
            (true, true) => put(&mut path, format_args!("H{x:.1}V{y:.1}")),
        }
        pen_down = true;
        markers.push((x, y));
    }
    if path.is_empty() {
        return;
    }
    let (colour, dash) = (index % COLOURS, dash_of(index));
    put(out, format_args!("<path class=\"data s{colour}\"{dash} d=\"{path}\"/>\n"));
    if !steps && markers.len() <= MARKERS_MAX {
        markers.into_iter().for_each(|place| draw_marker(out, index, place));
    }
}

fn draw_marker(out: &mut String, index: usize, (x, y): (f64, f64)) {
    let colour = index % COLOURS;
    let shape = match index % 4 {
        0 => format!("<circle class=\"f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>"),
        1 => format!("<rect class=\"f{colour}\" x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"/>", x - 3.5, y - 3.5),
        2 => format!("<path class=\"f{colour}\" d=\"M{x:.1} {:.1}l4.5 8h-9z\"/>", y - 4.5),
        _ => format!("<path class=\"f{colour}\" d=\"M{x:.1} {:.1}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\"/>", y - 4.5),
    };
    put(out, format_args!("{shape}\n"));
}

fn draw_bars(out: &mut String, index: usize, series: &Series, figure: &Figure, frame: &Frame) {
    let categories = figure.categories.len();
    let slot = (frame.right - frame.left) / categories as f64;
    let width = (slot * 0.78 / figure.series.len() as f64).min(BAR_WIDTH_MAX);
    let group = width * figure.series.len() as f64;
    let base = frame.up(frame.y.base());
    let show_values = categories * figure.series.len() <= BAR_VALUES_MAX;
    for (category, (_, value)) in series.points.iter().enumerate().take(categories) {
        let Some(along) = frame.y.position(*value) else { continue };
        let x = frame.left + slot * (category as f64 + 0.5) - group / 2.0 + width * index as f64;
        let y = frame.up(along);
        put(
            out,
            format_args!(
                "<rect class=\"f{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\n",
                index % COLOURS,
                x + 1.0,
                y.min(base),
                (width - 2.0).max(1.0),
                (y - base).abs()
            ),
        );
        if show_values {
            put(
                out,
                format_args!(
                    "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n",
                    x + width / 2.0,
                    y.min(base) - 4.0,
                    escape(&frame.y.text(*value))
                ),
            );
        }
    }
}

fn draw_histogram(out: &mut String, index: usize, series: &Series, frame: &Frame, count: usize) {
    let base = frame.up(frame.y.base());
    let opacity = if count > 1 { " fill-opacity=\"0.55\"" } else { "" };
    for pair in series.points.windows(2) {
        let [(low, value), (high, _)] = *pair else { continue };
        let (Some((left, top)), Some((right, _))) = (frame.point((low, value)), frame.point((high, value))) else {
            continue;
        };
        put(
            out,
            format_args!(
                "<rect class=\"f{}\"{opacity} x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\n",
                index % COLOURS,
                left.min(right),
                top.min(base),
                ((right - left).abs() - 0.6).max(0.4),
                (top - base).abs()
            ),
        );
    }
}
