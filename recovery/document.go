package recovery

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	schemaVersion = 1
	// maxDocument bounds what is read of a recovery file.
	maxDocument = 64 << 20
)

// StateReconcile is the state of a recovery file: somebody has to find out what the
// runs did, and acknowledge them.
const StateReconcile = "reconciliation_required"

// Document is the content of the recovery file, schema version 1.
type Document struct {
	SchemaVersion int       `json:"schemaVersion"`
	State         string    `json:"state"`       // StateReconcile
	RecoveredAt   time.Time `json:"recoveredAt"` // of the last merge
	// Epoch is the number of the Open that wrote the file; see [Report].
	Epoch uint64 `json:"epoch,omitempty"`
	// Checksum covers the runs as the file holds them. A file without one is
	// accepted.
	Checksum string   `json:"checksum,omitempty"`
	Runs     []Record `json:"runs"`
}

// errSchema means that a recovery file has another schema version.
var errSchema = errors.New("another schema version")

// encodeDocument returns the file for a set of runs.
func encodeDocument(at time.Time, epoch uint64, runs []Record) ([]byte, error) {
	list, err := json.Marshal(runs)
	if err != nil {
		return nil, fmt.Errorf("encoding pending runs: %w", err)
	}
	doc, err := json.MarshalIndent(Document{
		SchemaVersion: schemaVersion, State: StateReconcile, RecoveredAt: at.UTC(), Epoch: epoch,
		Checksum: sum256(list), Runs: runs,
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding recovery file: %w", err)
	}
	return append(doc, '\n'), nil
}

// decodeDocument reads a recovery file. With errSchema nothing of it may be used;
// with any other error the file is damaged.
func decodeDocument(data []byte) (*Document, error) {
	var head struct {
		SchemaVersion *int            `json:"schemaVersion"`
		Checksum      string          `json:"checksum"`
		Runs          json.RawMessage `json:"runs"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("decoding recovery file: %w", err)
	}
	if head.SchemaVersion == nil {
		return nil, errors.New("decoding recovery file: it has no schemaVersion")
	}
	if *head.SchemaVersion != schemaVersion {
		return nil, fmt.Errorf("decoding recovery file: %w, %d", errSchema, *head.SchemaVersion)
	}
	var doc Document
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("decoding recovery file: %w", err)
	}
	if doc.State != StateReconcile {
		return nil, fmt.Errorf("decoding recovery file: unknown state %q", doc.State)
	}
	if head.Checksum != "" {
		var list bytes.Buffer
		if err := json.Compact(&list, head.Runs); err != nil {
			return nil, fmt.Errorf("decoding recovery file: %w", err)
		}
		if sum256(list.Bytes()) != head.Checksum {
			return nil, errors.New("decoding recovery file: its checksum is wrong")
		}
	}
	for i := range doc.Runs {
		if doc.Runs[i].RequestID == "" {
			return nil, fmt.Errorf("decoding recovery file: run %d has no requestId", i)
		}
	}
	return &doc, nil
}

// salvageRuns returns every run that can still be read in a damaged recovery file:
// each JSON object with a requestId, wherever it starts.
func salvageRuns(data []byte) []Record {
	var runs []Record
	for off := 0; off < len(data); {
		i := bytes.IndexByte(data[off:], '{')
		if i < 0 {
			break
		}
		off += i
		dec := json.NewDecoder(bytes.NewReader(data[off:min(len(data), off+maxRun)]))
		var r Record
		if err := dec.Decode(&r); err != nil || r.RequestID == "" {
			off++
			continue
		}
		runs = append(runs, r)
		off += int(dec.InputOffset())
	}
	return runs
}

// maxRun bounds one run in a recovery file: a begin record with each byte escaped.
const maxRun = 8 * maxBegin

// sum256 is a SHA-256 with its name before it.
func sum256(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// SetDigest names a set of runs: equal for the same ids in any order. It is what
// [Selection].Digest takes.
func SetDigest(runs []Record) string {
	ids := idsOf(runs)
	slices.Sort(ids)
	return sum256([]byte(fmt.Sprintf("%q", ids)))
}

// idsOf lists the ids of runs.
func idsOf(runs []Record) []string {
	ids := make([]string, len(runs))
	for i := range runs {
		ids[i] = runs[i].RequestID
	}
	return ids
}

// sortRuns puts runs in the order in which they started.
func sortRuns(runs []Record) {
	slices.SortFunc(runs, func(a, b Record) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.RequestID, b.RequestID))
	})
}
