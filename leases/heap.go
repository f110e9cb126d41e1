package leases

// idleHeap orders the leases that nobody uses by when they end.
type idleHeap []*lease

func (h idleHeap) Len() int           { return len(h) }
func (h idleHeap) Less(i, j int) bool { return h[i].expires < h[j].expires }
func (h idleHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *idleHeap) Push(x any) {
	l := x.(*lease)
	l.place = len(*h)
	*h = append(*h, l)
}

// Pop implements heap.Interface.
func (h *idleHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.place = -1
	return l
}

// useHeap orders uses by when they came.
type useHeap []*Use

func (h useHeap) Len() int           { return len(h) }
func (h useHeap) Less(i, j int) bool { return h[i].arrived < h[j].arrived }
func (h useHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *useHeap) Push(x any) { *h = append(*h, x.(*Use)) }

// Pop implements heap.Interface.
func (h *useHeap) Pop() any {
	last := len(*h) - 1
	u := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return u
}
