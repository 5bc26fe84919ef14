package endpoints

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"podium/pkg/scheme"
)

// Two bytes of a body can stand for a container, which takes a thousand here: the
// length of a body does not bound what it becomes. These do. Nothing that fits
// into the store comes near them.
const (
	maxObjects   = 50_000    // in JSON and YAML
	maxTiny      = 100_000   // fields of a few bytes in protobuf, each of which may be an object
	maxPlainYAML = 1_000_000 // bytes of YAML that is not JSON; the reader makes 100 of one
	tiny         = 3
)

// checkBulk is a 413 for a body that would become much more than it is.
func checkBulk(data []byte, media string) error {
	switch media {
	case scheme.Protobuf:
		if n := tinyFields(data, 0); n > maxTiny {
			return tooLarge("at most %d fields of up to %d bytes are read", maxTiny, tiny)
		}
		return nil
	case scheme.YAML, applyYAML:
		text := bytes.TrimLeft(data, " \t\r\n")
		if len(text) > 0 && text[0] == '{' {
			break
		}
		if len(data) > maxPlainYAML {
			return tooLarge("limit of YAML is %d; send it as JSON", maxPlainYAML)
		}
		if listItems(data) > maxObjects {
			return tooLarge("at most %d objects are read", maxObjects)
		}
	}
	if objects(data) > maxObjects {
		return tooLarge("at most %d objects are read", maxObjects)
	}
	return nil
}

func tooLarge(format string, args ...any) error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(format, args...))
}

// objects counts the braces that open, outside of strings.
func objects(data []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '{' && !quoted:
			n++
		}
	}
	return n
}

// listItems counts the lines that begin with a dash.
func listItems(data []byte) int {
	n := 0
	for line := range bytes.Lines(data) {
		for line = bytes.TrimLeft(line, " "); bytes.HasPrefix(line, []byte("- ")); line = bytes.TrimLeft(line[2:], " ") {
			n++
		}
	}
	return n
}

// maxProtoDepth is deeper than any kind is.
const maxProtoDepth = 24

// tinyFields counts the fields of a few bytes at every depth. Which fields are
// messages is not known here: what can be read as one is taken for one.
func tinyFields(data []byte, depth int) int {
	if depth == 0 {
		data = bytes.TrimPrefix(data, []byte("k8s\x00"))
	}
	n := 0
	for len(data) > 0 {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 || number <= 0 {
			return n
		}
		data = data[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(number, kind, data); size < 0 {
				return n
			}
			data = data[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(data)
		if size < 0 {
			return n
		}
		data = data[size:]
		if len(value) <= tiny {
			n++
		} else if depth < maxProtoDepth {
			n += tinyFields(value, depth+1)
		}
		if n > maxTiny {
			return n
		}
	}
	return n
}
