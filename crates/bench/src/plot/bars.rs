//! Bars in groups, one of each group for each system, with their values above.

use super::axis::{Axis, shown};
use super::{Anchor, BOTTOM, Drawing, GRID, HEIGHT, INK, LEFT, RIGHT, TOP, WIDTH, colour};

pub struct Bars {
    pub title: String,
    pub y: String,
    pub groups: Vec<String>,
    /// A name, and what it has in each group.
    pub series: Vec<(String, Vec<Option<Bar>>)>,
}

pub struct Bar {
    pub value: f64,
    pub label: String,
}

impl Bars {
    pub fn to_svg(&self) -> String {
        let values = self.series.iter().flat_map(|(_, bars)| bars.iter().flatten());
        let y = Axis::linear(values.map(|bar| bar.value));
        let mut drawing = Drawing::new(&self.title);
        let (low, end) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        for tick in y.ticks() {
            let at = low - y.place(tick) * (low - TOP);
            drawing.line((LEFT, at), (end, at), GRID);
            drawing.label((LEFT - 8.0, at + 4.0), Anchor::End, &shown(tick));
        }
        let marks = drawing.legend(self.series.iter().map(|(name, _)| name.as_str()));
        for (number, (x, y)) in marks.into_iter().enumerate() {
            drawing.rectangle((x - 6.0, y - 6.0), 12.0, 12.0, colour(number));
        }
        let group_width = (end - LEFT) / self.groups.len().max(1) as f64;
        // What is left between two groups is as wide as a bar.
        let bar_width = group_width / (self.series.len() + 1) as f64;
        for (place, group) in self.groups.iter().enumerate() {
            let left = LEFT + place as f64 * group_width;
            drawing.label((left + group_width / 2.0, low + 20.0), Anchor::Middle, group);
            for (number, (_, bars)) in self.series.iter().enumerate() {
                let Some(bar) = bars.get(place).and_then(Option::as_ref) else { continue };
                let height = y.place(bar.value) * (low - TOP);
                let x = left + (number as f64 + 0.5) * bar_width;
                let width = bar_width * 0.86;
                drawing.rectangle((x, low - height), width, height, colour(number));
                let above = (x + width / 2.0, low - height - 5.0);
                drawing.element(&format!(
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" \
                     font-size=\"10\">{}</text>",
                    above.0,
                    above.1,
                    super::escaped(&bar.label)
                ));
            }
        }
        drawing.line((LEFT, low), (end, low), INK);
        drawing.line((LEFT, TOP), (LEFT, low), INK);
        drawing.upright(&self.y);
        drawing.finish()
    }
}
