package leases

// Empty reports whether the table remembers nothing of what there was but handles.
func (t *Table) Empty() bool {
	t.lock()
	defer t.unlock()
	return len(t.nodes) == 0 && t.trees == 0 && len(t.byHand) == 0 && len(t.waiting) == 0 && len(t.idle) == 0 && len(t.retry) == 0
}
