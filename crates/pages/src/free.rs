//! Free pages, by the part of the pool that they are in.

/// Numbers of pages that can be written.
#[derive(Debug, Default)]
pub(crate) struct FreePages {
    /// By part.
    lists: Vec<Vec<u32>>,
}

impl FreePages {
    pub fn give(&mut self, part: u16, page: u32) {
        let part = usize::from(part);
        if self.lists.len() <= part {
            self.lists.resize_with(part + 1, Vec::new);
        }
        self.lists[part].push(page);
    }

    pub fn count(&self) -> usize {
        self.lists.iter().map(Vec::len).sum()
    }

    pub fn count_in(&self, part: u16) -> usize {
        self.lists.get(usize::from(part)).map_or(0, Vec::len)
    }

    /// So many pages: as many as possible of the first of `parts`, then of the next one. They have them.
    pub fn take(&mut self, count: usize, parts: &[u16]) -> Vec<u32> {
        let mut taken = Vec::new();
        for part in parts {
            let Some(list) = self.lists.get_mut(usize::from(*part)) else { continue };
            let of_part = list.len().min(count - taken.len());
            taken.append(&mut list.split_off(list.len() - of_part));
        }
        debug_assert_eq!(taken.len(), count, "the caller has looked for them");
        taken
    }

    /// All of them.
    pub fn take_all(&mut self) -> Vec<u32> {
        self.lists.iter_mut().flat_map(std::mem::take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_from_the_first_part_that_has_them() {
        let mut free = FreePages::default();
        for (part, page) in [(0, 1), (0, 2), (2, 7), (2, 8), (2, 9)] {
            free.give(part, page);
        }
        assert_eq!((free.count(), free.count_in(1), free.count_in(2), free.count_in(9)), (5, 0, 3, 0));
        assert_eq!(free.take(2, &[2]), [8, 9]);
        assert_eq!(free.take(2, &[1, 2, 0]), [7, 2]);
        assert_eq!(free.take_all(), [1]);
        assert_eq!(free.count(), 0);
    }
}
