package status

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestSnapshotRoundTrip(t *testing.T) {
	var got Snapshot
	if err := json.Unmarshal([]byte(encoded(t, full())), &got); err != nil {
		t.Fatal(err)
	}
	if want := full().canonical(); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestSnapshotIsNotChangedByEncoding(t *testing.T) {
	s := full()
	encoded(t, s)
	if !reflect.DeepEqual(s, full()) {
		t.Error("encoding changed the snapshot")
	}
}

func TestTimesAreUTC(t *testing.T) {
	times := regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`).FindAllString(encoded(t, full()), -1)
	if len(times) < 9 {
		t.Errorf("%d times found", len(times))
	}
	for _, text := range times {
		if !strings.HasSuffix(text, `Z"`) {
			t.Errorf("%s is not in UTC", text)
		}
	}
}

// TestNoPlaceForSecrets holds that no type of a snapshot has a field that a
// command line, an environment, a URL or arguments could be put into.
func TestNoPlaceForSecrets(t *testing.T) {
	forbidden := regexp.MustCompile(`(?i)command|cmd|args|argument|env|url|header|token|handle|secret|param|result`)
	seen := make(map[reflect.Type]bool)
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Slice, reflect.Pointer:
			walk(typ.Elem())
		case reflect.Map, reflect.Interface:
			t.Errorf("%s can hold anything", typ)
		case reflect.Struct:
			if seen[typ] || typ == reflect.TypeFor[time.Time]() {
				return
			}
			seen[typ] = true
			for i := range typ.NumField() {
				f := typ.Field(i)
				if tag := f.Tag.Get("json"); tag == "" || forbidden.MatchString(f.Name+" "+tag) {
					t.Errorf("%s.%s %q", typ, f.Name, tag)
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[Snapshot]())
	if len(seen) < 9 {
		t.Errorf("only %d types seen", len(seen))
	}
}

func TestEncodeBounds(t *testing.T) {
	data, err := encode(stressed(), MaxBytes)
	if err != nil {
		t.Fatal(err)
	}
	var got Snapshot
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if len(data) > MaxBytes || len(data) < MaxBytes/4 {
		t.Errorf("%d bytes, want at most %d and not much less", len(data), MaxBytes)
	}
	if got.ClientSessions != 600 || got.LeasesTotal != 400 || got.FindingsTotal != 300 || got.ActiveRunsTotal != 1 {
		t.Errorf("totals %d, %d, %d, %d", got.ClientSessions, got.LeasesTotal, got.FindingsTotal, got.ActiveRunsTotal)
	}
	if len(got.Sessions) == 0 || len(got.Leases) == 0 || len(got.Findings) == 0 || len(got.ActiveRuns) != 1 || len(got.Upstreams) != 2 {
		t.Errorf("lists of %d, %d, %d, %d, %d", len(got.Sessions), len(got.Leases), len(got.Findings), len(got.ActiveRuns), len(got.Upstreams))
	}
	if got.Sessions[0].ID != "session-0" {
		t.Errorf("the first session is %s", got.Sessions[0].ID)
	}
	if _, err := encode(full(), 100); err == nil {
		t.Error("a snapshot was encoded in 100 bytes")
	}
}

func TestOutsideTextIsClipped(t *testing.T) {
	s := stressed()
	s.ActiveRuns[0].OwnerID = strings.Repeat("o", 2000)
	s.Upstreams[0].Name = strings.Repeat("n", 2000)
	s = s.canonical()
	session, lease, finding := s.Sessions[0], s.Leases[0], s.Findings[0]
	for _, text := range []string{session.Client.Name, session.Client.Version, s.ActiveRuns[0].OwnerID, s.Upstreams[0].Name} {
		if len(text) > maxName {
			t.Errorf("a name of %d bytes", len(text))
		}
	}
	for _, text := range []string{session.Project, lease.Resource} {
		if len(text) > maxPath {
			t.Errorf("a path of %d bytes", len(text))
		}
	}
	for _, text := range []string{finding.Detail, finding.Remedy} {
		if len(text) > maxDetail {
			t.Errorf("a detail of %d bytes", len(text))
		}
	}
}

func TestClip(t *testing.T) {
	tests := []struct{ text, want string }{
		{"", ""},
		{"0123456789", "0123456789"},
		{"0123456789a", "0123456…"},
		{"012345日本語", "012345…"},
		{strings.Repeat("é", 10), "ééé…"},
	}
	for _, tt := range tests {
		got := clip(tt.text, 10)
		if got != tt.want || len(got) > 10 || !utf8.ValidString(got) {
			t.Errorf("clip(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestCodes(t *testing.T) {
	form := regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	seen := make(map[Code]bool)
	for _, info := range Codes() {
		if seen[info.Code] || !form.MatchString(string(info.Code)) || info.Title == "" || info.Severity.rank() == 2 && info.Severity != Info {
			t.Errorf("%+v", info)
		}
		seen[info.Code] = true
		if info.Code.Info() != info {
			t.Errorf("Info of %q = %+v", info.Code, info.Code.Info())
		}
	}
	Codes()[0].Title = "changed"
	if Codes()[0].Title == "changed" {
		t.Error("the registry can be changed")
	}
	if got := Code("newer_code").Finding("d", "r", began()); got.Severity != Warning || got.Title != "newer_code" {
		t.Errorf("finding of an unknown code: %+v", got)
	}
}

func TestSortFindings(t *testing.T) {
	at := func(minute int) time.Time { return began().Add(time.Duration(minute) * time.Minute) }
	findings := []Finding{
		{Code: "b", Severity: Info, Since: at(0)}, {Code: "b", Severity: Failure, Since: at(2)}, {Code: "b", Severity: Failure, Since: at(1)},
		{Code: "a", Severity: Warning, Since: at(0)}, {Code: "a", Severity: Failure, Since: at(3)},
	}
	SortFindings(findings)
	var got []string
	for _, f := range findings {
		got = append(got, string(f.Severity[:1])+string(f.Code)+f.Since.Sub(began()).String())
	}
	if want := "fa3m0s fb1m0s fb2m0s wa0s ib0s"; strings.Join(got, " ") != want {
		t.Errorf("order %q, want %q", got, want)
	}
}
