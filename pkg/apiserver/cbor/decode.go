package cbor

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// The limits of a body. A byte of CBOR may become six bytes of JSON, and a map needs
// memory for its keys: these limits hold before the memory is taken.
const (
	maxDepth = 10_000  // containers in each other, as in JSON
	maxPairs = 200_000 // entries of all maps together
)

// ErrTooLarge is returned for a body that exceeds the limits.
var ErrTooLarge = errors.New("the CBOR body is too large")

var errTruncated = errors.New("unexpected end of CBOR")

// The tags that change how a string is read.
const (
	tagTimeEpoch = 1
	tagBignum    = 2
	tagNegBignum = 3
	tagBase64URL = 21
	tagBase64    = 22
	tagBase16    = 23
)

// ToJSON translates a CBOR data item to JSON of at most limit bytes. It returns an
// error for data after the item, and for what JSON cannot express: keys that are no
// strings or occur twice, integers of more than 64 bits, infinities.
func ToJSON(data []byte, limit int) ([]byte, error) {
	d := decoder{data: data, limit: limit}
	if err := d.item(0); err != nil {
		return nil, err
	}
	if len(d.data) > 0 {
		return nil, fmt.Errorf("%d bytes after the end of the CBOR item", len(d.data))
	}
	return d.out, nil
}

type decoder struct {
	data  []byte // what is left
	out   []byte
	limit int // of out, in bytes
	depth int
	pairs int
	keys  [][]byte // of the open maps, as JSON
}

// head reads the first bytes of an item. For an item of indefinite length, and for the
// end of one, more is true.
func (d *decoder) head() (major byte, n uint64, info byte, err error) {
	if len(d.data) == 0 {
		return 0, 0, 0, errTruncated
	}
	major, info = d.data[0]&0xe0, d.data[0]&0x1f
	d.data = d.data[1:]
	size := 0
	switch {
	case info < 24:
		return major, uint64(info), info, nil
	case info <= 27:
		size = 1 << (info - 24)
	case info == indefinite:
		return major, 0, info, nil
	default:
		return 0, 0, 0, fmt.Errorf("reserved CBOR byte %#x", major|info)
	}
	if len(d.data) < size {
		return 0, 0, 0, errTruncated
	}
	for _, b := range d.data[:size] {
		n = n<<8 | uint64(b)
	}
	d.data = d.data[size:]
	return major, n, info, nil
}

// put appends JSON to the output.
func (d *decoder) put(text []byte) error {
	if len(d.out)+len(text) > d.limit {
		return ErrTooLarge
	}
	d.out = append(d.out, text...)
	return nil
}

// item translates the next item. tag is the number of the tag around it, 0 for none.
func (d *decoder) item(tag uint64) error {
	major, n, info, err := d.head()
	if err != nil {
		return err
	}
	if info == indefinite && (major <= majorNegint || major >= majorTag) {
		return errors.New("CBOR item of indefinite length that can have none")
	}
	switch major {
	case majorUint, majorNegint:
		return d.integer(major, n, tag)
	case majorBytes, majorText:
		text, err := d.text(major, n, info)
		if err != nil {
			return err
		}
		return d.str(major, text, tag)
	case majorTag:
		return d.tagged(n)
	case majorSimple:
		return d.simple(n, info, tag)
	}
	if d.depth++; d.depth > maxDepth {
		return ErrTooLarge
	}
	defer func() { d.depth-- }()
	if major == majorArray {
		return d.array(n, info == indefinite)
	}
	return d.object(n, info == indefinite)
}

func (d *decoder) tagged(tag uint64) error {
	if tag == tagBignum || tag == tagNegBignum {
		return errors.New("CBOR integer of more than 64 bits")
	}
	if d.depth++; d.depth > maxDepth {
		return ErrTooLarge
	}
	defer func() { d.depth-- }()
	return d.item(tag)
}

func (d *decoder) integer(major byte, n, tag uint64) error {
	if n > math.MaxInt64 {
		return errors.New("CBOR integer of more than 64 bits")
	}
	value := int64(n)
	if major == majorNegint {
		value = -1 - value
	}
	if tag == tagTimeEpoch {
		return d.time(time.Unix(value, 0))
	}
	return d.put(strconv.AppendInt(nil, value, 10))
}

func (d *decoder) time(t time.Time) error {
	text, err := t.UTC().MarshalJSON()
	if err != nil {
		return fmt.Errorf("time in CBOR: %w", err)
	}
	return d.put(text)
}

// text reads the content of a string, which may consist of several parts.
func (d *decoder) text(major byte, n uint64, info byte) ([]byte, error) {
	if info != indefinite {
		return d.take(n)
	}
	var all []byte
	for {
		part, n, info, err := d.head()
		switch {
		case err != nil:
			return nil, err
		case part == majorSimple && info == indefinite:
			return all, nil
		case part != major || info == indefinite:
			return nil, errors.New("CBOR string with parts that are no strings of its type")
		}
		text, err := d.take(n)
		if err != nil {
			return nil, err
		}
		all = append(all, text...)
	}
}

func (d *decoder) take(n uint64) ([]byte, error) {
	if n > uint64(len(d.data)) {
		return nil, errTruncated
	}
	text := d.data[:n]
	d.data = d.data[n:]
	return text, nil
}

// str writes a string; byte strings in the form that the tag asks for.
func (d *decoder) str(major byte, text []byte, tag uint64) error {
	if major == majorBytes {
		switch tag {
		case tagBase64:
			text = base64.StdEncoding.AppendEncode(nil, text)
		case tagBase64URL:
			text = base64.RawURLEncoding.AppendEncode(nil, text)
		case tagBase16:
			text = hex.AppendEncode(nil, text)
		}
	}
	if !utf8.Valid(text) {
		return errors.New("CBOR string that is not UTF-8")
	}
	quoted, err := json.Marshal(string(text))
	if err != nil {
		return err
	}
	return d.put(quoted)
}

func (d *decoder) array(n uint64, open bool) error {
	if err := d.put([]byte{'['}); err != nil {
		return err
	}
	for i := uint64(0); open || i < n; i++ {
		if open && d.ends() {
			break
		}
		if i > 0 {
			if err := d.put([]byte{','}); err != nil {
				return err
			}
		}
		if err := d.item(0); err != nil {
			return err
		}
	}
	return d.put([]byte{']'})
}

// ends consumes the byte that ends an item of indefinite length, if it is next.
func (d *decoder) ends() bool {
	if len(d.data) == 0 || d.data[0] != end {
		return false
	}
	d.data = d.data[1:]
	return true
}

func (d *decoder) object(n uint64, open bool) error {
	if err := d.put([]byte{'{'}); err != nil {
		return err
	}
	first := len(d.keys)
	for i := uint64(0); open || i < n; i++ {
		if open && d.ends() {
			break
		}
		if d.pairs++; d.pairs > maxPairs {
			return ErrTooLarge
		}
		if i > 0 {
			if err := d.put([]byte{','}); err != nil {
				return err
			}
		}
		if err := d.pair(); err != nil {
			return err
		}
	}
	keys := d.keys[first:]
	slices.SortFunc(keys, slices.Compare[[]byte])
	for i := 1; i < len(keys); i++ {
		if slices.Equal(keys[i-1], keys[i]) {
			return fmt.Errorf("CBOR map with the key %q twice", keys[i])
		}
	}
	d.keys = d.keys[:first]
	return d.put([]byte{'}'})
}

// pair translates a key, which must be a string, and its value.
func (d *decoder) pair() error {
	major, n, info, err := d.head()
	if err != nil {
		return err
	}
	if major != majorBytes && major != majorText {
		return errors.New("CBOR map with a key that is no string")
	}
	key, err := d.text(major, n, info)
	if err != nil {
		return err
	}
	d.keys = append(d.keys, key)
	if err := d.str(major, key, 0); err != nil {
		return err
	}
	if err := d.put([]byte{':'}); err != nil {
		return err
	}
	return d.item(0)
}

// simple translates booleans, null and floating-point numbers.
func (d *decoder) simple(n uint64, info byte, tag uint64) error {
	var f float64
	switch info {
	case 20:
		return d.put([]byte("false"))
	case 21:
		return d.put([]byte("true"))
	case 22:
		return d.put([]byte("null"))
	case 25:
		f = half(uint16(n))
	case 26:
		f = float64(math.Float32frombits(uint32(n)))
	case 27:
		f = math.Float64frombits(n)
	default:
		return fmt.Errorf("CBOR simple value %d", n)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return errors.New("CBOR number that is not finite")
	}
	if tag == tagTimeEpoch {
		whole, part := math.Modf(f)
		return d.time(time.Unix(int64(whole), int64(part*1e9)))
	}
	text := strconv.AppendFloat(nil, f, 'g', -1, 64)
	if !slices.ContainsFunc(text, func(c byte) bool { return c == '.' || c == 'e' }) {
		text = append(text, ".0"...) // not an integer
	}
	return d.put(text)
}

// half returns the value of a number of 16 bits (IEEE 754).
func half(bits uint16) float64 {
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	value := math.Ldexp(fraction+1024, exponent-25)
	switch exponent {
	case 0:
		value = math.Ldexp(fraction, -24)
	case 31:
		value = math.Inf(1)
		if fraction != 0 {
			value = math.NaN()
		}
	}
	if bits&0x8000 != 0 {
		value = -value
	}
	return value
}
