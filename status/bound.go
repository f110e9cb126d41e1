package status

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// MaxBytes bounds the status file.
const MaxBytes = 64 << 10

// Bounds in bytes of text that comes from outside.
const (
	maxName   = 160
	maxPath   = 512
	maxDetail = 1024
)

// maxListed bounds each list before its size is looked at, so that encoding a
// snapshot costs little however much goes on.
const maxListed = 256

// clip returns text, or as much of it as makes at most limit bytes with an
// ellipsis behind it. It cuts no character in two.
func clip(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	end := limit - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + ellipsis
}

// encode returns s as JSON of at most limit bytes. To get there it halves the
// list that takes the most room, again and again; the totals stay.
func encode(s Snapshot, limit int) ([]byte, error) {
	s.Servers = s.Servers[:min(len(s.Servers), maxListed)]
	s.Sessions = s.Sessions[:min(len(s.Sessions), maxListed)]
	s.Upstreams = s.Upstreams[:min(len(s.Upstreams), maxListed)]
	s.Leases = s.Leases[:min(len(s.Leases), maxListed)]
	s.LeaseWaits = s.LeaseWaits[:min(len(s.LeaseWaits), maxListed)]
	s.ActiveRuns = s.ActiveRuns[:min(len(s.ActiveRuns), maxListed)]
	s.Findings = s.Findings[:min(len(s.Findings), maxListed)]
	for {
		data, err := encodeJSON(s)
		if err != nil {
			return nil, fmt.Errorf("encoding status: %w", err)
		}
		if len(data) <= limit {
			return data, nil
		}
		if !s.halve() {
			return nil, fmt.Errorf("encoding status: %d bytes without any list, and %d are allowed", len(data), limit)
		}
	}
}

// halve cuts the largest list of s to its first half, and returns false if
// there is nothing left to cut. It does not touch the lists' elements.
func (s *Snapshot) halve() bool {
	lists := []struct {
		size int
		cut  func()
	}{
		{sizeOf(s.Servers), func() { s.Servers = s.Servers[:len(s.Servers)/2] }},
		{sizeOf(s.Sessions), func() { s.Sessions = s.Sessions[:len(s.Sessions)/2] }},
		{sizeOf(s.Upstreams), func() { s.Upstreams = s.Upstreams[:len(s.Upstreams)/2] }},
		{sizeOf(s.Leases), func() { s.Leases = s.Leases[:len(s.Leases)/2] }},
		{sizeOf(s.LeaseWaits), func() { s.LeaseWaits = s.LeaseWaits[:len(s.LeaseWaits)/2] }},
		{sizeOf(s.ActiveRuns), func() { s.ActiveRuns = s.ActiveRuns[:len(s.ActiveRuns)/2] }},
		{sizeOf(s.Findings), func() { s.Findings = s.Findings[:len(s.Findings)/2] }},
	}
	largest := 0
	for i := range lists {
		if lists[i].size > lists[largest].size {
			largest = i
		}
	}
	if lists[largest].size == 0 {
		return false
	}
	lists[largest].cut()
	return true
}

// sizeOf returns the bytes of list as JSON, 0 if it is empty.
func sizeOf[T any](list []T) int {
	if len(list) == 0 {
		return 0
	}
	data, err := json.Marshal(list)
	if err != nil {
		return 0
	}
	return len(data)
}
