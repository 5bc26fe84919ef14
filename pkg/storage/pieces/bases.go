package pieces

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
	"sync"
)

const (
	mostBases   = 32
	leastBase   = 128      // bytes; shorter ones are not worth a piece
	longestBase = 16 << 10 // bytes
	leastPiece  = 64       // bytes
	mostSets    = 16       // of a text
)

// fieldsBegin is how the field sets of managedFields begin, in JSON and inside protobuf messages.
const fieldsBegin = `{"f:`

// Bases holds the field sets that the texts of a cache share: those that new texts have used most
// recently. Safe for concurrent use; the zero value is empty.
type Bases struct {
	mu   sync.Mutex
	list []string // the most recently used one first
}

// Pack returns a text that equals data and shares the parts of its field sets that other texts have, too.
// data must not be modified later.
func (b *Bases) Pack(data []byte) Text {
	var buffer [2 * mostSets]piece
	shared, total := buffer[:0], 0
	for at, set := range fieldSets(data) {
		begin, end := b.share(set)
		for _, p := range [...]piece{{at, begin}, {at + len(set) - len(end), end}} {
			if len(p.text) >= leastPiece {
				shared, total = append(shared, p), total+len(p.text)
			}
		}
	}
	if len(shared) == 0 {
		return Whole(data)
	}
	own, from := make([]byte, 0, len(data)-total), 0
	for i, p := range shared {
		own = append(own, data[from:p.at]...)
		from, shared[i].at = p.at+len(p.text), len(own)
	}
	return Text{append(own, data[from:]...), slices.Clone(shared)}
}

// fieldSets yields what looks like a field set, with its index. It looks at a bounded number, since
// each may cost longestBase.
func fieldSets(data []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		from := 1 // the first byte is never shared
		for range mostSets {
			at := -1
			if from < len(data) {
				at = bytes.Index(data[from:], []byte(fieldsBegin))
			}
			if at < 0 {
				return
			}
			at += from
			n := objectLen(data[at:min(len(data), at+longestBase)])
			if n >= leastBase && !yield(at, data[at:at+n]) {
				return
			}
			from = at + max(n, len(fieldsBegin))
		}
	}
}

// share returns parts of a base that are the beginning and the end of a field set; both may be empty.
// A set that differs from all bases becomes one.
func (b *Bases) share(set []byte) (begin, end string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	best := -1
	for i, base := range b.list {
		n := samePrefix(base, set)
		m := sameSuffix(base[n:], set[n:])
		if best < 0 || n+m > len(begin)+len(end) {
			best, begin, end = i, base[:n], base[len(base)-m:]
		}
		if n+m == len(set) {
			break
		}
	}
	if best >= 0 && 4*(len(begin)+len(end)) >= 3*len(set) {
		b.useLocked(best)
		return begin, end
	}
	if len(b.list) == mostBases {
		b.list = b.list[:mostBases-1]
	}
	base := string(set)
	b.list = slices.Insert(b.list, 0, base)
	return base, ""
}

// useLocked moves a base to the front.
func (b *Bases) useLocked(i int) {
	base := b.list[i]
	copy(b.list[1:i+1], b.list[:i])
	b.list[0] = base
}

// samePrefix returns the length of the longest common prefix.
func samePrefix(a string, b []byte) int {
	most, n := min(len(a), len(b)), 0
	for n+8 <= most {
		if x := load(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
		n += 8
	}
	for n < most && a[n] == b[n] {
		n++
	}
	return n
}

// sameSuffix returns the length of the longest common suffix.
func sameSuffix(a string, b []byte) int {
	most, n := min(len(a), len(b)), 0
	for n+8 <= most {
		if x := load(a[len(a)-n-8:]) ^ binary.LittleEndian.Uint64(b[len(b)-n-8:]); x != 0 {
			return n + bits.LeadingZeros64(x)/8
		}
		n += 8
	}
	for n < most && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

func load(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// objectLen returns the length of the JSON object at the beginning of data; 0 if it has no end.
func objectLen(data []byte) int {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			if i = stringEnd(data, i+1); i < 0 {
				return 0
			}
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// stringEnd returns the index of the quote that ends the string whose text begins at from; -1 if
// there is none.
func stringEnd(data []byte, from int) int {
	for i := from; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}
