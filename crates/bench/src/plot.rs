//! Plots as SVG: lines over one number, and bars by name. Colours tell systems apart, and so do
//! marks and labels, for whoever sees no colours.

mod axis;
mod bars;
mod lines;

pub use bars::{Bar, Bars};
pub use lines::{Lines, Point, Series};

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 430.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 62.0;
const INK: &str = "#222";
const GRID: &str = "#e2e2e2";

/// Colours that differ for all kinds of eyes (Okabe and Ito), by the order of the legend.
const COLOURS: &[&str] =
    &["#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#777777", "#cc79a7", "#000000"];

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// A drawing that grows by elements.
struct Drawing {
    text: String,
}

#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

impl Drawing {
    fn new(title: &str) -> Self {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" \
             fill=\"{INK}\" role=\"img\">\n<title>{title}</title>\n\
             <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n",
            title = escaped(title),
        );
        let mut drawing = Self { text };
        drawing.element(&format!(
            "<text x=\"{LEFT}\" y=\"28\" font-size=\"16\" font-weight=\"bold\">{}</text>",
            escaped(title)
        ));
        drawing
    }

    fn element(&mut self, element: &str) {
        self.text += element;
        self.text.push('\n');
    }

    fn label(&mut self, (x, y): (f64, f64), anchor: Anchor, label: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let label = escaped(label);
        self.element(&format!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{label}</text>"
        ));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        self.element(&format!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    fn rectangle(&mut self, (x, y): (f64, f64), width: f64, height: f64, colour: &str) {
        self.element(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{colour}\"/>"
        ));
    }

    /// The label of an upright axis.
    fn upright(&mut self, label: &str) {
        let (x, y) = (20.0, (TOP + HEIGHT - BOTTOM) / 2.0);
        let label = escaped(label);
        self.element(&format!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 {x} {y})\">{label}</text>"
        ));
    }

    /// One entry after the other, below the title; returns where each has its mark.
    fn legend<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> Vec<(f64, f64)> {
        const PER_CHARACTER: f64 = 7.0;
        let (mut x, y) = (LEFT, 54.0);
        let mut marks = Vec::new();
        for name in names {
            marks.push((x + 8.0, y - 4.0));
            self.label((x + 22.0, y), Anchor::Start, name);
            x += 46.0 + name.chars().count() as f64 * PER_CHARACTER;
        }
        marks
    }

    fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        let _ = match letter {
            '&' => write!(escaped, "&amp;"),
            '<' => write!(escaped, "&lt;"),
            '>' => write!(escaped, "&gt;"),
            '"' => write!(escaped, "&quot;"),
            other => write!(escaped, "{other}"),
        };
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every element that begins ends, in order, and every attribute has its quotes.
    fn well_formed(text: &str) -> Result<usize, String> {
        let (mut open, mut count, mut rest) = (Vec::new(), 0, text);
        while let Some(start) = rest.find('<') {
            let end = start + rest[start..].find('>').ok_or("a tag does not end")?;
            let tag = &rest[start + 1..end];
            if tag.matches('"').count() % 2 != 0 || tag.contains('<') {
                return Err(format!("<{tag}> has broken attributes"));
            }
            let name = tag.trim_matches('/').split_whitespace().next().unwrap_or_default();
            match (tag.starts_with('/'), tag.ends_with('/')) {
                (true, _) if open.pop() != Some(name) => {
                    return Err(format!("{name} was not open"));
                }
                (true, _) | (_, true) => {}
                (false, false) => open.push(name),
            }
            count += 1;
            rest = &rest[end + 1..];
        }
        if rest.contains('>') || !open.is_empty() {
            return Err(format!("left open: {open:?}"));
        }
        let ampersands = text.matches('&').count();
        let entities = ["&amp;", "&lt;", "&gt;", "&quot;"];
        let known: usize = entities.iter().map(|entity| text.matches(entity).count()).sum();
        if ampersands != known || text.contains("NaN") || text.contains("inf\"") {
            return Err("a bare ampersand, or no number".into());
        }
        Ok(count)
    }

    #[test]
    fn the_check_of_these_tests_finds_what_is_broken() {
        assert_eq!(well_formed("<a b=\"c\"><d/></a>"), Ok(3));
        for broken in ["<a>", "<a></b>", "<a b=\"c></a>", "<a x=\"NaN\"/>", "<a>&</a>"] {
            assert!(well_formed(broken).is_err(), "{broken}");
        }
    }

    fn lines(points: &[(f64, f64)]) -> String {
        lines_of(points).to_svg()
    }

    fn lines_of(points: &[(f64, f64)]) -> Lines {
        let points = points.iter().map(|&(x, y)| Point { x, y, more: y > 90.0 }).collect();
        Lines {
            title: "time & \"link\" <1>".into(),
            x: "link, kb/s".into(),
            y: "time, s".into(),
            series: vec![Series { name: "farfs".into(), points }],
        }
    }

    #[test]
    fn over_time_a_line_begins_at_zero_and_has_a_mark_in_the_legend_alone() {
        let text = lines_of(&[(0.0, 0.0), (5.0, 10.0), (10.0, 0.0)]).to_svg_over_time();
        well_formed(&text).unwrap();
        assert_eq!(text.matches("<circle").count(), 1, "{text}");
        assert!(text.contains(&format!("points=\"{LEFT:.1},{:.1} ", HEIGHT - BOTTOM)), "{text}");
    }

    #[test]
    fn lines_are_well_formed_and_have_axes_and_a_legend() {
        let text = lines(&[(64.0, 100.0), (512.0, 10.0), (8192.0, 0.5)]);
        well_formed(&text).unwrap();
        for label in ["link, kb/s", "time, s", "farfs", "&lt;1&gt;", "polyline"] {
            assert!(text.contains(label), "{label} is missing: {text}");
        }
    }

    #[test]
    fn nothing_and_a_single_point_are_drawn_too() {
        well_formed(&lines(&[])).unwrap();
        well_formed(&lines(&[(5.0, 0.0)])).unwrap();
    }

    #[test]
    fn bars_say_their_values_and_a_value_that_is_missing_has_no_bar() {
        let bar = |value, label: &str| Some(Bar { value, label: label.into() });
        let bars = Bars {
            title: "bytes".into(),
            y: "kB".into(),
            groups: vec!["text".into(), "docx".into()],
            series: vec![
                ("farfs".into(), vec![bar(7.0, "7 kB"), bar(0.0, "0 B")]),
                ("sshfs".into(), vec![bar(1400.0, "1.4 MB"), None]),
            ],
        };
        let text = bars.to_svg();
        well_formed(&text).unwrap();
        for label in ["7 kB", "1.4 MB", "text", "docx", "sshfs"] {
            assert!(text.contains(label), "{label} is missing");
        }
        // The ground, two entries of the legend, three bars.
        assert_eq!(text.matches("<rect").count(), 6, "{text}");
    }
}
