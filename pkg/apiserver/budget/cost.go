package budget

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/scheme"
)

// The length of a body does not bound its decoded size: two bytes can encode a
// container, which takes a thousand. These limits do. No object that fits into
// the store comes near them.
const (
	maxObjects   = 50_000    // maps and list elements in JSON and YAML: each may be an object
	maxFields    = 200_000   // length-delimited fields in protobuf, each of which may be an object
	maxTiny      = 100_000   // of these, fields of at most tiny bytes
	maxPlainYAML = 1_000_000 // bytes of YAML that is not JSON, its aliases expanded
	tiny         = 3
)

// The bytes that a decoder allocates, measured on the kinds with the highest
// cost.
const (
	perObject   = 2048 // a struct in a growing slice
	perValue    = 640  // an entry of a map, and the validation errors for it
	perByte     = 2    // the body and the strings that are copied from it
	perYAMLByte = 100  // the YAML reader's own tree
	jsonAsYAML  = 4    // factor for JSON that the YAML reader parses too
)

// measuredFirst is the length, in bytes, up to which YAML is measured before
// memory is claimed for it, since its node tree is small.
const measuredFirst = 16 << 10

// Cost estimates how many bytes decoding a body allocates. The error is a 413
// for a body over the limits, or a 400 for YAML that cannot be parsed. Cost
// allocates nothing unless the body is YAML with aliases.
func Cost(data []byte, media string) (int64, error) {
	switch {
	case media == scheme.Protobuf:
		return protoCost(data)
	case strings.HasSuffix(media, "yaml"):
		return yamlCost(data)
	}
	return jsonCost(data)
}

// Check returns a 413 or 400 error for a long YAML body that exceeds the limits
// once its aliases are expanded, which Cost does not measure. Acquire the
// memory that Cost returns first.
func Check(data []byte, media string) error {
	if len(data) <= measuredFirst || !strings.HasSuffix(media, "yaml") || isJSON(data) {
		return nil
	}
	_, err := expanded(data)
	return err
}

func jsonCost(data []byte) (int64, error) {
	objects, values := count(data)
	if objects > maxObjects {
		return 0, tooLarge("at most %d objects and list elements are read", maxObjects)
	}
	return perByte*int64(len(data)) + perObject*int64(objects) + perValue*int64(values), nil
}

// yamlCost expands the aliases of a short text. For a long one with aliases it
// returns the cost of the longest text allowed; see Check.
func yamlCost(data []byte) (int64, error) {
	switch {
	case isJSON(data):
		cost, err := jsonCost(data)
		return jsonAsYAML * cost, err
	case len(data) > maxPlainYAML:
		return 0, tooLarge("limit of YAML is %d; send it as JSON", maxPlainYAML)
	case bytes.HasPrefix(data, []byte("\xfe\xff")), bytes.HasPrefix(data, []byte("\xff\xfe")):
		return 0, apierrors.NewBadRequest("YAML must be encoded as UTF-8")
	case bytes.IndexByte(data, '*') < 0: // no aliases
		return perYAMLByte * int64(len(data)), nil
	case len(data) > measuredFirst:
		return perYAMLByte * maxPlainYAML, nil
	}
	size, err := expanded(data)
	return perYAMLByte * size, err
}

// isJSON reports whether data is certainly a JSON object, and thus free of YAML
// aliases. An asterisk in a string does not count, unlike in other YAML.
func isJSON(data []byte) bool {
	text := bytes.TrimLeft(data, " \t\r\n")
	return len(text) > 0 && text[0] == '{' && json.Valid(data)
}

// protoCost counts the length-delimited fields, each of which may become an
// object.
func protoCost(data []byte) (int64, error) {
	var f fields
	f.scan(bytes.TrimPrefix(data, []byte("k8s\x00")), 0)
	if f.tiny > maxTiny {
		return 0, tooLarge("at most %d fields of up to %d bytes are read", maxTiny, tiny)
	}
	if f.all > maxFields {
		return 0, tooLarge("at most %d fields are read", maxFields)
	}
	return perByte*int64(len(data)) + perObject*int64(f.all), nil
}

func tooLarge(format string, args ...any) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(format, args...))
}

// count returns the number of maps and list elements, each of which may become
// an object, and the number of commas outside of strings.
func count(data []byte) (objects, values int) {
	var in nesting
	quoted := false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			quoted = !quoted
		case quoted:
			if c == '\\' {
				i++
			}
		case c == '{':
			if !in.list() {
				objects++ // list elements are counted by their commas
			}
			in.enter(false)
		case c == '[':
			objects++ // the first element
			in.enter(true)
		case c == '}' || c == ']':
			in.leave()
		case c == ',':
			values++
			if in.list() {
				objects++
			}
		}
	}
	return objects, values
}

// nesting tracks which containers around a position are lists. Levels deeper
// than it can record count as lists.
type nesting struct {
	depth int
	lists [16]uint64
}

func (n *nesting) enter(list bool) {
	if n.depth < 64*len(n.lists) {
		n.lists[n.depth/64] &^= 1 << (n.depth % 64)
		if list {
			n.lists[n.depth/64] |= 1 << (n.depth % 64)
		}
	}
	n.depth++
}

func (n *nesting) leave() {
	if n.depth > 0 {
		n.depth--
	}
}

// list reports whether the innermost container is a list.
func (n *nesting) list() bool {
	if n.depth == 0 {
		return false
	}
	at := n.depth - 1
	return at >= 64*len(n.lists) || n.lists[at/64]&(1<<(at%64)) != 0
}
