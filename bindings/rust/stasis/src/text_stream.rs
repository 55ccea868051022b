//! Text on its way to the reader of an iterator: whole characters, nothing that may yet become a
//! stop string. Says what the library's callback says; a test holds the two together.

#[derive(Default)]
pub(crate) struct TextStream {
    stops: Vec<Vec<u8>>,
    /// Text that is not delivered yet. Stop strings can only be in it, because a text that may
    /// begin one is kept back.
    waiting: Vec<u8>,
    /// Length of the part of `waiting` that is certain to be shown.
    certain: usize,
    stopped: bool,
}

impl TextStream {
    pub(crate) fn new(stop_strings: &[&str]) -> TextStream {
        let stops = stop_strings.iter().map(|text| text.as_bytes().to_vec()).collect();
        TextStream { stops, ..TextStream::default() }
    }

    /// The text ends at the first byte that completes a stop string; of several that it completes,
    /// the longest is the one cut off.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.stopped {
                break;
            }
            self.waiting.push(*byte);
            let waiting = &self.waiting;
            let completed = self.stops.iter().filter(|stop| waiting.ends_with(stop));
            if let Some(length) = completed.map(Vec::len).max() {
                self.stopped = true;
                self.waiting.truncate(self.waiting.len() - length);
            }
        }
        let held = if self.stopped { 0 } else { self.held() };
        self.certain = self.waiting.len() - held;
    }

    /// Length of the longest end that is the beginning of a stop string.
    fn held(&self) -> usize {
        let beginning = |stop: &Vec<u8>| {
            (0..=stop.len()).rev().find(|length| self.waiting.ends_with(&stop[..*length]))
        };
        self.stops.iter().filter_map(beginning).max().unwrap_or(0)
    }

    pub(crate) fn stopped(&self) -> bool {
        self.stopped
    }

    /// The text has ended: what was held back is part of it.
    pub(crate) fn finish(&mut self) {
        self.certain = self.waiting.len();
    }

    /// Returns the text that can be shown now.
    pub(crate) fn take(&mut self) -> String {
        let length = complete(&self.waiting[..self.certain]);
        self.certain -= length;
        crate::raw::text_from(self.waiting.drain(..length).collect())
    }
}

/// Length of the text without an incomplete last character. Bytes that can never become valid are
/// not held back.
fn complete(text: &[u8]) -> usize {
    let mut at = 0;
    while let Err(error) = std::str::from_utf8(&text[at..]) {
        at += error.valid_up_to();
        match error.error_len() {
            Some(length) => at += length,
            None => return at,
        }
    }
    text.len()
}
