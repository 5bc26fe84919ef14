package cbor

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
)

// The major types of CBOR, in the upper three bits of an item's first byte.
const (
	majorUint   = 0 << 5
	majorNegint = 1 << 5
	majorBytes  = 2 << 5
	majorText   = 3 << 5
	majorArray  = 4 << 5
	majorMap    = 5 << 5
	majorTag    = 6 << 5
	majorSimple = 7 << 5
)

// Single bytes of CBOR.
const (
	beginArray = majorArray | indefinite
	beginMap   = majorMap | indefinite
	end        = 0xff
	no         = 0xf4
	yes        = 0xf5
	null       = 0xf6
	float64s   = 0xfb
	indefinite = 31
)

// selfDescribed is the tag that marks data as CBOR.
const selfDescribed = "\xd9\xd9\xf7"

// flushAt is the size in bytes at which an encoder writes its output.
const flushAt = 32 << 10

// encoder translates JSON values, one after the other, to CBOR. The JSON may be split
// anywhere; it must be valid, as that of this server is. An encoder holds at most a
// string and flushAt bytes in memory. It is not safe for concurrent use.
type encoder struct {
	out     io.Writer
	buf     []byte // output that is not written yet
	token   []byte // the string, number or name that is being read
	depth   int
	quoted  bool // in a string
	escaped bool // after a backslash
	escapes bool // the string has one
}

// Write translates the next part of the JSON. It returns the error of the writer.
func (e *encoder) Write(p []byte) (int, error) {
	for _, c := range p {
		if e.quoted {
			if err := e.text(c); err != nil {
				return 0, err
			}
			continue
		}
		if err := e.structure(c); err != nil {
			return 0, err
		}
	}
	if len(e.buf) >= flushAt {
		return len(p), e.Flush()
	}
	return len(p), nil
}

// Flush writes what is translated so far. It ends a number at the end of the JSON.
func (e *encoder) Flush() error {
	if err := e.scalar(); err != nil || len(e.buf) == 0 {
		return err
	}
	_, err := e.out.Write(e.buf)
	e.buf = e.buf[:0]
	return err
}

// text reads a byte of a string.
func (e *encoder) text(c byte) error {
	switch {
	case e.escaped:
		e.escaped = false
	case c == '\\':
		e.escaped, e.escapes = true, true
	case c == '"':
		e.quoted = false
		return e.str()
	}
	e.token = append(e.token, c)
	return nil
}

// str writes the string that has been read.
func (e *encoder) str() error {
	if !e.escapes {
		e.buf = append(head(e.buf, majorBytes, uint64(len(e.token))), e.token...)
		e.token = e.token[:0]
		return nil
	}
	var text string
	if err := json.Unmarshal([]byte(`"`+string(e.token)+`"`), &text); err != nil {
		return fmt.Errorf("translate a string to CBOR: %w", err)
	}
	e.buf = append(head(e.buf, majorBytes, uint64(len(text))), text...)
	e.token, e.escapes = e.token[:0], false
	return nil
}

// structure reads a byte outside of strings.
func (e *encoder) structure(c byte) error {
	switch c {
	case '"':
		e.begin()
		e.quoted = true
	case '{':
		e.begin()
		e.buf = append(e.buf, beginMap)
		e.depth++
	case '[':
		e.begin()
		e.buf = append(e.buf, beginArray)
		e.depth++
	case '}', ']':
		if err := e.scalar(); err != nil {
			return err
		}
		e.buf = append(e.buf, end)
		e.depth--
	case ',', ':', ' ', '\t', '\r', '\n':
		return e.scalar()
	default:
		e.token = append(e.token, c)
	}
	return nil
}

// begin marks a value that is not inside of another as CBOR.
func (e *encoder) begin() {
	if e.depth == 0 {
		e.buf = append(e.buf, selfDescribed...)
	}
}

// scalar writes the number or name that has been read, if there is one.
func (e *encoder) scalar() error {
	if len(e.token) == 0 || e.quoted {
		return nil
	}
	e.begin()
	token := string(e.token)
	e.token = e.token[:0]
	switch token {
	case "true":
		e.buf = append(e.buf, yes)
	case "false":
		e.buf = append(e.buf, no)
	case "null":
		e.buf = append(e.buf, null)
	default:
		return e.number(token)
	}
	return nil
}

func (e *encoder) number(token string) error {
	if n, err := strconv.ParseInt(token, 10, 64); err == nil {
		if n < 0 {
			e.buf = head(e.buf, majorNegint, uint64(-(n + 1)))
		} else {
			e.buf = head(e.buf, majorUint, uint64(n))
		}
		return nil
	}
	f, err := strconv.ParseFloat(token, 64)
	if err != nil {
		return fmt.Errorf("translate %q to CBOR: %w", token, err)
	}
	e.buf = binary.BigEndian.AppendUint64(append(e.buf, float64s), math.Float64bits(f))
	return nil
}

// head appends the first bytes of an item: its major type and its argument.
func head(buf []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(buf, major|byte(n))
	case n <= math.MaxUint8:
		return append(buf, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(buf, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(buf, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(buf, major|27), n)
}
