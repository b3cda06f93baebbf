//! Where in the table each word of the lexicon is kept.

use super::*;

impl Draft {
    /// Gives every word a place of its own (hash and displace, after Pagh 1999): the buckets with most words choose first.
    pub(super) const fn find_places(&mut self) {
        let mut sizes = [0; BUCKETS];
        let mut index = 1;
        while index <= self.last {
            sizes[bucket(self.hashes[index])] += 1;
            index += 1;
        }
        let (words, ends) = self.by_bucket(&sizes);
        let mut size = MOST_IN_BUCKET;
        while size > 0 {
            let mut bucket = 0;
            while bucket < BUCKETS {
                if sizes[bucket] == size {
                    self.place_bucket(
                        bucket,
                        words.split_at(ends[bucket]).0.split_at(ends[bucket] - size).1,
                    );
                }
                bucket += 1;
            }
            size -= 1;
        }
    }

    /// The entries in the order of their buckets, and where each bucket ends.
    const fn by_bucket(&self, sizes: &[usize; BUCKETS]) -> ([u16; ENTRIES], [usize; BUCKETS]) {
        let (mut words, mut ends) = ([0; ENTRIES], [0; BUCKETS]);
        let (mut bucket_index, mut total) = (0, 0);
        while bucket_index < BUCKETS {
            assert!(sizes[bucket_index] <= MOST_IN_BUCKET);
            ends[bucket_index] = total;
            total += sizes[bucket_index];
            bucket_index += 1;
        }
        let mut index = 1;
        while index <= self.last {
            let end = &mut ends[bucket(self.hashes[index])];
            words[*end] = index as u16;
            *end += 1;
            index += 1;
        }
        (words, ends)
    }

    /// Finds the shift with which all words of a bucket fall on free places, and puts them there.
    const fn place_bucket(&mut self, bucket: usize, words: &[u16]) {
        let mut shift = 0;
        while !self.fits(words, shift) {
            shift += 1; // the build fails when no shift is left
        }
        self.lexicon.shifts[bucket] = shift;
    }

    /// Places the words with this shift; where that fails, none of them.
    const fn fits(&mut self, words: &[u16], shift: u8) -> bool {
        let mut count = 0;
        while count < words.len() {
            let index = words[count] as usize;
            let free = &mut self.lexicon.places[place(self.hashes[index], shift)];
            if free.tag != 0 {
                break;
            }
            *free = self.entries[index];
            count += 1;
        }
        let all = count == words.len();
        while !all && count > 0 {
            count -= 1;
            self.lexicon.places[place(self.hashes[words[count] as usize], shift)] = UNKNOWN;
        }
        all
    }
}
