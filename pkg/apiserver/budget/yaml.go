package budget

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// expanded returns the length of a YAML text with its aliases expanded. It
// returns a 413 error if the text exceeds the limits of YAML, or a 400 if it
// cannot be parsed.
func expanded(data []byte) (int64, error) {
	e := expansion{known: map[*yaml.Node]size{}}
	for docs := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := docs.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, apierrors.NewBadRequest("error decoding YAML: " + err.Error())
		}
		e.total.add(e.measure(&doc))
	}
	switch {
	case e.endless:
		return 0, apierrors.NewBadRequest("error decoding YAML: an anchor's value contains itself")
	case e.total.bytes > maxPlainYAML:
		return 0, tooLarge("limit of YAML with its aliases expanded is %d bytes", maxPlainYAML)
	case e.total.objects > maxObjects:
		return 0, tooLarge("at most %d objects and list elements are read, aliases expanded", maxObjects)
	}
	return max(int64(len(data)), e.total.bytes), nil
}

// size is the expanded size of a node: bytes of text, and maps and list
// elements.
type size struct{ bytes, objects int64 }

// add saturates above the limits, since nested aliases double with each level
// and could overflow.
func (s *size) add(more size) {
	s.bytes = min(s.bytes+more.bytes, 2*maxPlainYAML)
	s.objects = min(s.objects+more.objects, 2*maxObjects)
}

// expansion measures node trees. It measures each anchored node once.
type expansion struct {
	known   map[*yaml.Node]size // of anchored nodes
	total   size
	endless bool // an anchored value contains an alias of itself
}

// open marks an anchored node whose measurement has not finished.
var open = size{bytes: -1}

// measure returns the expanded size of a node. It sets e.endless for an alias
// within its own anchor.
func (e *expansion) measure(n *yaml.Node) size {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if s, ok := e.known[n]; ok {
		if s == open {
			e.endless = true
			return size{}
		}
		return s
	}
	if n.Anchor != "" {
		e.known[n] = open
	}
	s := size{bytes: int64(len(n.Value)) + 2}
	switch n.Kind {
	case yaml.MappingNode:
		s.objects = 1
	case yaml.SequenceNode:
		s.objects = int64(len(n.Content))
	}
	for _, child := range n.Content {
		s.add(e.measure(child))
	}
	if n.Anchor != "" {
		e.known[n] = s
	}
	return s
}
