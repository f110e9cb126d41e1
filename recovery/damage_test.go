package recovery_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"interlock/recovery"
)

const (
	journalPath  = "/d/daemon.journal"
	recoveryPath = "/d/daemon.recovery.json"
)

// span is where the record of a run lies in a file.
type span struct{ from, to int }

// clear says that a change of the bytes [from, to) does not touch the record.
func (s span) clear(from, to int) bool { return to <= s.from || s.to <= from }

// smallJournal makes a journal with three runs that did not end and returns it with
// the place of each begin record, found by the format that doc.go describes.
func smallJournal(t *testing.T, sync recovery.Sync) (data []byte, records map[string]span) {
	m := newMemFS()
	j, _ := open(t, recovery.Options{Dir: "/d", FS: m, SegmentSize: 1, BootID: "one", Sync: sync})
	for n := range 3 {
		in := intent(n)
		in.Client, in.Resources, in.Arguments = "", nil, nil
		begin(t, j, in)
	}
	active, _ := j.Active(3)
	j.Close()
	data, records = m.content(journalPath), map[string]span{}
	for off := 64; binary.LittleEndian.Uint32(data[off+4:]) != 0; {
		size := (12 + int(binary.LittleEndian.Uint32(data[off+4:])) + 4 + 7) / 8 * 8
		for _, r := range active {
			if bytes.Contains(data[off:off+size], []byte(r.RequestID)) {
				records[r.RequestID] = span{off, off + size}
			}
		}
		off += size
	}
	if len(records) != 3 {
		t.Fatalf("found %d records", len(records))
	}
	return data, records
}

// lookAt inspects one damaged file: no intact record is lost. It returns whether
// mutations would stop and how many records could not be read.
func lookAt(t *testing.T, what, path string, data []byte, records map[string]span, from, to int) (blocked bool, missing int) {
	t.Helper()
	m := newMemFS()
	m.put(path, data)
	state, err := recovery.Inspect(recovery.Options{Dir: "/d", FS: m, BootID: "one"})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	var got []string
	if state.Recovery != nil {
		got = ids(state.Recovery.Runs)
	}
	for id, s := range records {
		if slices.Contains(got, id) {
			continue
		}
		missing++
		if s.clear(from, to) {
			t.Fatalf("%s: pending %v, not %s", what, got, id)
		}
	}
	return slices.ContainsFunc(state.Problems, func(p recovery.Problem) bool { return p.Blocks }), missing
}

// thorough is how many kinds of damage are only looked at for one that a daemon is
// started on.
const thorough = 64

// startOn starts on one damaged file and checks what must hold for any damage: no
// intact record is lost, what is refused is refused with a remedy that helps, and the
// state after it is the same with the next start.
func startOn(t *testing.T, what, path string, data []byte, records map[string]span, from, to int) (blocked bool) {
	t.Helper()
	m := newMemFS()
	m.put(path, data)
	o := recovery.Options{Dir: "/d", FS: m, SegmentSize: 1, BootID: "one"}
	var want []string
	for id, s := range records {
		if s.clear(from, to) {
			want = append(want, id)
		}
	}
	lost := func(j *recovery.Journal) bool {
		got := ids(j.Pending())
		return slices.ContainsFunc(want, func(id string) bool { return !slices.Contains(got, id) })
	}
	for start := range 2 {
		j, report := open(t, o)
		if lost(j) {
			t.Fatalf("%s, start %d: pending %v, want %v", what, start, ids(j.Pending()), want)
		}
		now := slices.ContainsFunc(report.Problems, func(p recovery.Problem) bool { return p.Blocks })
		if start > 0 && now != blocked {
			t.Fatalf("%s: blocked %v, then %v", what, blocked, now)
		}
		blocked = now
		r, err := j.Begin(intent(9))
		if blocked != errors.Is(err, recovery.ErrQuarantined) {
			t.Fatalf("%s: blocked %v, Begin: %v", what, blocked, err)
		}
		if err == nil {
			r.End(recovery.OutcomeOK, "")
		}
		j.Close()
	}
	if !blocked {
		return false
	}
	if _, err := recovery.Repair(o); err != nil {
		if foreign := errors.Is(err, recovery.ErrQuarantined) && bytes.Equal(m.content(path), data); foreign {
			return true
		}
		t.Fatalf("%s: repair: %v", what, err)
	}
	j, report := open(t, o)
	defer j.Close()
	if len(report.Problems) != 0 || lost(j) {
		t.Fatalf("%s: after repair: %+v, pending %v", what, report.Problems, ids(j.Pending()))
	}
	begin(t, j, intent(9))
	return true
}

// damages does to data what disks, crashes and people do, and calls each with the
// bytes that it changed.
func damages(data []byte, used int, each func(what string, data []byte, from, to int)) {
	for n := range used + 1 {
		each(fmt.Sprintf("cut to %d", n), data[:n], n, len(data))
	}
	for n := range used {
		for bit := range 8 {
			bad := slices.Clone(data)
			bad[n] ^= 1 << bit
			each(fmt.Sprintf("bit %d of byte %d", bit, n), bad, n, n+1)
		}
	}
	for _, size := range []int{1, 8, 100, 512, 4096} {
		for n := 0; n < used; n += 8 {
			bad := slices.Clone(data)
			end := min(n+size, used)
			clear(bad[n:end])
			each(fmt.Sprintf("zeros from %d to %d", n, end), bad, n, end)
		}
	}
	rng := rand.New(rand.NewSource(1))
	for range 64 {
		garbage := make([]byte, 1+rng.Intn(300))
		rng.Read(garbage)
		each("garbage at the end of the file", append(slices.Clone(data), garbage...), len(data), len(data))
		if used+len(garbage) < len(data) {
			bad := slices.Clone(data)
			copy(bad[used:], garbage)
			each("garbage behind the last record", bad, used, used+len(garbage))
		}
	}
}

func TestDamagedJournal(t *testing.T) {
	data, records := smallJournal(t, recovery.SyncCrash)
	used := 0
	for _, s := range records {
		used = max(used, s.to)
	}
	n := 0
	damages(data, used, func(what string, bad []byte, from, to int) {
		blocked, missing := lookAt(t, what, journalPath, bad, records, from, to)
		if n++; n%thorough == 0 && startOn(t, what, journalPath, bad, records, from, to) != blocked {
			t.Errorf("%s: Inspect says blocked %v, Open does not", what, blocked)
		}
		// A run that had begun and cannot be read any more must not go unnoticed.
		if flipped := to-from == 1 && to < len(data); flipped && missing > 0 && !blocked {
			t.Fatalf("%s: a lost record stopped nothing", what)
		}
	})
}

func TestDamagedRecoveryFile(t *testing.T) {
	m := newMemFS()
	j, _ := open(t, recovery.Options{Dir: "/d", FS: m, SegmentSize: 1, BootID: "one"})
	records := map[string]span{}
	for n := range 3 {
		in := intent(n)
		in.Client, in.Tool, in.Resources, in.Arguments = "", "", nil, nil
		r := begin(t, j, in)
		if err := r.End(recovery.OutcomeUnknown, ""); err != nil {
			t.Fatal(err)
		}
		records[r.ID()] = span{}
	}
	j.Close()
	data := m.content(recoveryPath)
	for id := range records {
		at := bytes.Index(data, []byte(id))
		from := bytes.LastIndexByte(data[:at], '{')
		records[id] = span{from, at + bytes.IndexByte(data[at:], '}') + 1}
	}
	schema := bytes.Index(data, []byte(`"schemaVersion": 1`)) + len(`"schemaVersion": `)
	n := 0
	damages(data, len(data), func(what string, bad []byte, from, to int) {
		if from == schema && to == schema+1 {
			return // another version, as TestForeignFiles has it
		}
		lookAt(t, what, recoveryPath, bad, records, from, to)
		if n++; n%thorough == 0 {
			startOn(t, what, recoveryPath, bad, records, from, to)
		}
	})
}

// TestForeignFiles leaves files of other versions exactly as they are.
func TestForeignFiles(t *testing.T) {
	journal, records := smallJournal(t, recovery.SyncCrash)
	newer := slices.Clone(journal)
	newer[8] = 2
	binary.LittleEndian.PutUint32(newer[60:], castagnoli(newer[:60]))
	for _, tt := range []struct {
		name  string
		files map[string]string
		known int // runs that can be read all the same
	}{
		{"recovery file", map[string]string{recoveryPath: `{"schemaVersion":2,"state":"new","runs":{}}`}, 0},
		{"recovery file beside a journal", map[string]string{
			recoveryPath: `{"schemaVersion":0}`, journalPath: string(journal)}, len(records)},
		{"journal", map[string]string{journalPath: string(newer)}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMemFS()
			for name, data := range tt.files {
				m.put(name, []byte(data))
			}
			o := recovery.Options{Dir: "/d", FS: m, BootID: "two"}
			j, report := open(t, o)
			if len(report.Problems) != 1 || report.Problems[0].Code != recovery.CodeSchema || !report.Problems[0].Blocks {
				t.Errorf("problems %+v", report.Problems)
			}
			if len(j.Pending()) != tt.known {
				t.Errorf("pending %v", ids(j.Pending()))
			}
			if _, err := j.Begin(intent(1)); !errors.Is(err, recovery.ErrQuarantined) {
				t.Errorf("Begin: %v", err)
			}
			if _, err := j.Acknowledge(recovery.Selection{IDs: ids(j.Pending())}); !errors.Is(err, recovery.ErrQuarantined) {
				t.Errorf("Acknowledge: %v", err)
			}
			if _, err := j.Repair(); !errors.Is(err, recovery.ErrQuarantined) {
				t.Errorf("Repair: %v", err)
			}
			j.Close()
			if !slices.Equal(m.list(), slices.Sorted(func(yield func(string) bool) {
				for name := range maps.Keys(tt.files) {
					if !yield(filepath.Base(name)) {
						return
					}
				}
			})) {
				t.Errorf("files %v", m.list())
			}
			for name, data := range tt.files {
				if string(m.content(name)) != data {
					t.Errorf("%s changed", name)
				}
			}
		})
	}
}

// TestTornTail cuts a write short, as SIGKILL within it does.
func TestTornTail(t *testing.T) {
	data, records := smallJournal(t, recovery.SyncCrash)
	last := span{}
	for _, s := range records {
		if s.to > last.to {
			last = s
		}
	}
	clear(data[last.from+40 : last.to])
	m := newMemFS()
	m.put(journalPath, data)
	o := recovery.Options{Dir: "/d", FS: m, BootID: "one"}
	j, report := open(t, o)
	if len(j.Pending()) != 2 || report.Torn != 40 || len(report.Problems) != 1 || report.Problems[0].Code != recovery.CodeTorn {
		t.Errorf("pending %v, report %+v", ids(j.Pending()), report)
	}
	begin(t, j, intent(1)).End(recovery.OutcomeOK, "")
	j.Close()
	kept := slices.DeleteFunc(m.list(), func(name string) bool { return !strings.Contains(name, ".torn-") })
	if len(kept) != 1 || !bytes.Equal(m.content("/d/"+kept[0]), data[last.from:last.from+40]) {
		t.Errorf("kept aside: %v", kept)
	}
	if j, report = open(t, o); len(report.Problems) != 0 || len(j.Pending()) != 2 {
		t.Errorf("the next start: %+v, pending %v", report, ids(j.Pending()))
	}
	j.Close()
}

// TestLostPage loses a page in the middle. It is damage while the machine is up, since
// the kernel does not lose pages, and what was synced is not lost by a restart either.
func TestLostPage(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sync   recovery.Sync
		boot   string
		blocks bool
	}{
		{"same boot", recovery.SyncCrash, "one", true},
		{"unknown boot", recovery.SyncCrash, "", true},
		{"restarted, not synced", recovery.SyncCrash, "two", false},
		{"restarted, synced", recovery.SyncPower, "two", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data, records := smallJournal(t, tt.sync)
			first := span{to: len(data)}
			for _, s := range records {
				if s.to < first.to {
					first = s
				}
			}
			clear(data[first.from:first.to])
			m := newMemFS()
			m.put(journalPath, data)
			o := recovery.Options{Dir: "/d", FS: m, BootID: tt.boot}
			j, report := open(t, o)
			if len(j.Pending()) != 2 || len(report.Problems) != 1 || report.Problems[0].Blocks != tt.blocks {
				t.Errorf("pending %v, report %+v", ids(j.Pending()), report)
			}
			j.Close()
			if j, _ = open(t, o); len(j.Pending()) != 2 {
				t.Errorf("the next start: pending %v", ids(j.Pending()))
			}
			j.Close()
			if kept := slices.ContainsFunc(m.list(), func(name string) bool {
				return strings.Contains(name, ".torn-") && bytes.Equal(m.content("/d/"+name), data)
			}); kept == tt.blocks {
				t.Errorf("kept aside as a torn file: %v", kept)
			}
		})
	}
}

// TestNotFiles puts what is no regular file, or far too large a one, in the place of
// each file.
func TestNotFiles(t *testing.T) {
	for _, name := range []string{"daemon.journal", "daemon.recovery.json"} {
		for what, make := range map[string]func(path string) error{
			"directory": func(path string) error { return os.Mkdir(path, 0o700) },
			"fifo":      func(path string) error { return unix.Mkfifo(path, 0o600) },
			"link":      func(path string) error { return os.Symlink("/etc/hostname", path) },
			"dangling":  func(path string) error { return os.Symlink("nowhere", path) },
			"empty":     func(path string) error { return os.WriteFile(path, nil, 0o600) },
			"huge": func(path string) error {
				return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30))
			},
		} {
			t.Run(name+" is a "+what, func(t *testing.T) {
				o := recovery.Options{Dir: t.TempDir(), SegmentSize: 1}
				if err := make(filepath.Join(o.Dir, name)); err != nil {
					t.Fatal(err)
				}
				j, _ := open(t, o)
				if _, err := j.Begin(intent(1)); !errors.Is(err, recovery.ErrQuarantined) {
					t.Errorf("Begin: %v", err)
				}
				if _, err := j.Repair(); err != nil {
					t.Errorf("Repair: %v", err)
				}
				begin(t, j, intent(1)).End(recovery.OutcomeUnknown, "")
				j.Close()
				j, report := open(t, o)
				if len(j.Pending()) != 1 || len(report.Problems) != 0 {
					t.Errorf("after repair: %v, %+v", ids(j.Pending()), report.Problems)
				}
			})
		}
	}
}

// TestRepairWhileRunning mends under a running daemon, with runs active and others
// acknowledged in between.
func TestRepairWhileRunning(t *testing.T) {
	data, records := smallJournal(t, recovery.SyncCrash)
	var first string
	for id, s := range records {
		if first == "" || s.from < records[first].from {
			first = id
		}
	}
	data[records[first].from+20] ^= 1
	m := newMemFS()
	m.put(journalPath, data)
	o := recovery.Options{Dir: "/d", FS: m, SegmentSize: 1, Command: "interlock --dir /d"}
	j, report := open(t, o)
	if len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Remedy, "`interlock --dir /d daemon recovery --repair`") {
		t.Errorf("problems %+v", report.Problems)
	}
	if _, err := j.Acknowledge(recovery.Selection{IDs: ids(j.Pending())}); err != nil {
		t.Fatal(err)
	}
	done, err := j.Repair()
	if err != nil || len(done.Files) != 1 || done.Runs != 0 {
		t.Errorf("repaired %+v, %v", done, err)
	}
	r := begin(t, j, intent(1))
	if again, err := j.Repair(); err != nil || len(again.Files) != 0 || again.Runs != 0 {
		t.Errorf("repaired again: %+v, %v", again, err)
	}
	if err := r.End(recovery.OutcomeOK, ""); err != nil {
		t.Error(err)
	}
	j.Close()
	if j, _ = open(t, o); len(j.Pending()) != 0 {
		t.Errorf("pending %v", ids(j.Pending()))
	}
	j.Close()
}

// FuzzFiles starts on any content of the two files.
func FuzzFiles(f *testing.F) {
	f.Add([]byte{}, []byte(handWritten))
	f.Add([]byte("ILJOURN\xff"), []byte(`{"schemaVersion":1}`))
	m := newMemFS()
	j, _ := open(f, recovery.Options{Dir: "/d", FS: m, SegmentSize: 1, BootID: "one"})
	begin(f, j, intent(1)).End(recovery.OutcomeUnknown, "why")
	begin(f, j, intent(2))
	j.Close()
	f.Add(m.content(journalPath)[:2048], m.content(recoveryPath))
	f.Fuzz(func(t *testing.T, journal, file []byte) {
		m := newMemFS()
		m.put(journalPath, journal)
		m.put(recoveryPath, file)
		o := recovery.Options{Dir: "/d", FS: m, SegmentSize: 1, BootID: "two"}
		seen, err := recovery.Inspect(o)
		if err != nil {
			t.Fatal(err)
		}
		j, _ := open(t, o)
		if got := j.State(); got.Set != seen.Set {
			t.Errorf("Inspect saw %v, Open %v", seen, got)
		}
		before := ids(j.Pending())
		j.Close()
		j, _ = open(t, o)
		if got := ids(j.Pending()); !slices.Equal(got, before) {
			t.Errorf("pending %v, then %v", before, got)
		}
		j.Close()
	})
}
