package managed

import (
	"bytes"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// writer writes the paths of fields, in order, as FieldsV1.
type writer struct {
	buf    []byte
	levels []level // of the object, and of each path element that is open
}

type level struct {
	member bool // the path is a field itself, and does not only contain fields
	filled bool // the JSON object of the level is not empty
}

func (w *writer) reset() {
	w.buf = append(w.buf[:0], '{')
	w.levels = append(w.levels[:0], level{})
}

// add adds the field at path, whose elements are JSON strings. The last path of
// leave must be a prefix.
func (w *writer) add(path [][]byte) {
	for i := len(w.levels) - 1; i < len(path); i++ {
		parent := &w.levels[i]
		if parent.member && !parent.filled {
			w.buf = append(w.buf, `".":{}`...)
			parent.filled = true
		}
		if parent.filled {
			w.buf = append(w.buf, ',')
		}
		parent.filled = true
		w.buf = append(append(w.buf, path[i]...), ":{"...)
		w.levels = append(w.levels, level{})
	}
	w.levels[len(path)].member = true
}

// leave closes the path elements after the first n.
func (w *writer) leave(n int) {
	for len(w.levels) > n+1 {
		w.buf = append(w.buf, '}')
		w.levels = w.levels[:len(w.levels)-1]
	}
}

// fields returns what was added, nil if nothing was. The writer may be reused only
// after the result is no longer needed.
func (w *writer) fields() []byte {
	w.leave(0)
	if len(w.buf) == 1 {
		return nil
	}
	w.buf = append(w.buf, '}')
	return w.buf
}

// appendFieldName appends the path element of a field, quoted.
func appendFieldName(buf []byte, name string) []byte {
	if !plain(name) {
		return appendElement(buf, fieldpath.PathElement{FieldName: &name})
	}
	return append(append(append(buf, `"f:`...), name...), '"')
}

// plain reports whether no encoding escapes any byte of text.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// appendElement appends a path element, quoted.
func appendElement(buf []byte, e fieldpath.PathElement) []byte {
	var set fieldpath.Set
	set.Members.Insert(e)
	text, err := set.ToJSON()
	if err != nil { // a value that JSON does not have, such as an infinite number
		return append(buf, `"v:null"`...)
	}
	return append(buf, bytes.TrimSuffix(text[1:], []byte(`:{}}`))...)
}
