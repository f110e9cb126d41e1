package wire

import (
	"bytes"
	"unicode/utf8"
)

// idForm tells what kind of value stands where an id is due.
type idForm uint8

const (
	idAbsent idForm = iota
	idOpaque        // an integer or a string within bounds
	idNumber        // a number with a fraction or an exponent
	idNull
	idBad
)

func formOfID(raw []byte) idForm {
	switch {
	case len(raw) == 0:
		return idAbsent
	case raw[0] == '"':
		if len(raw)-2 > maxID {
			return idBad
		}
		return idOpaque
	case raw[0] == 'n':
		return idNull
	case raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') || len(raw) > maxID:
		return idBad
	}
	for _, c := range raw {
		if c == '.' || c|0x20 == 'e' {
			return idNumber
		}
	}
	return idOpaque
}

// AppendIDKey appends to dst the key under which to look up the id or token
// raw, a valid JSON integer or string: two spellings of one value have one
// key, an integer and a string never do.
func AppendIDKey(dst, raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '"' {
		return AppendText(append(dst, 's'), raw)
	}
	if string(raw) == "-0" {
		raw = raw[1:]
	}
	return append(append(dst, 'n'), raw...)
}

// ParseOwnID returns the id of ours, a positive integer below 10^18, that raw
// is. A zero fraction, which a peer without integers may have added, is
// tolerated.
func ParseOwnID(raw []byte) (id int64, ok bool) {
	i := 0
	for ; i < len(raw) && '0' <= raw[i] && raw[i] <= '9'; i++ {
		if i == 18 {
			return 0, false
		}
		id = id*10 + int64(raw[i]-'0')
	}
	if i == 0 || raw[0] == '0' {
		return 0, false
	}
	if rest := raw[i:]; len(rest) > 0 {
		if rest[0] != '.' || len(rest) < 2 || len(bytes.Trim(rest[1:], "0")) > 0 {
			return 0, false
		}
	}
	return id, true
}

// AppendText appends to dst the text that raw, a valid JSON string with its
// quotes, stands for. An escaped surrogate without its other half is appended
// as three bytes of its own, so that different strings have different texts;
// the result is then not valid UTF-8.
func AppendText(dst, raw []byte) []byte {
	raw = raw[1 : len(raw)-1]
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:i]...)
		r, n := unescape(raw[i:])
		raw = raw[i+n:]
		if 0xd800 <= r && r < 0xdc00 && len(raw) > 1 && raw[1] == 'u' && raw[0] == '\\' {
			if low, n := unescape(raw); 0xdc00 <= low && low < 0xe000 {
				r = (r-0xd800)<<10 + (low - 0xdc00) + 0x10000
				raw = raw[n:]
			}
		}
		if 0xd800 <= r && r < 0xe000 {
			dst = append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
			continue
		}
		dst = utf8.AppendRune(dst, r)
	}
}
