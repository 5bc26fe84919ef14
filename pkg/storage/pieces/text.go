package pieces

import "io"

// Text is an encoded object in pieces: bytes of its own, and between these bytes that it shares
// with other texts. It is immutable and safe for concurrent use. The zero value is empty.
type Text struct {
	own    []byte
	shared []piece
}

// piece stands before own[at:].
type piece struct {
	at   int
	text string
}

// Whole returns a text that shares nothing. data must not be modified later.
func Whole(data []byte) Text { return Text{own: data} }

// Len returns the number of bytes.
func (t Text) Len() int {
	n := len(t.own)
	for _, p := range t.shared {
		n += len(p.text)
	}
	return n
}

// Bytes returns the text in one piece. It must not be modified.
func (t Text) Bytes() []byte {
	if len(t.shared) == 0 {
		return t.own
	}
	return t.AppendTo(make([]byte, 0, t.Len()), 0)
}

// AppendTo appends the text without its first skip bytes, none of which is shared if they are
// 0 or 1.
func (t Text) AppendTo(b []byte, skip int) []byte {
	for _, p := range t.shared {
		b = append(append(b, t.own[skip:p.at]...), p.text...)
		skip = p.at
	}
	return append(b, t.own[skip:]...)
}

// Write writes the text to w as AppendTo appends it. The error is the writer's.
func (t Text) Write(w io.Writer, skip int) (err error) {
	for _, p := range t.shared {
		if _, err = w.Write(t.own[skip:p.at]); err == nil {
			_, err = io.WriteString(w, p.text)
		}
		if err != nil {
			return err
		}
		skip = p.at
	}
	_, err = w.Write(t.own[skip:])
	return err
}

// Equal reports whether the text is data.
func (t Text) Equal(data []byte) bool {
	if t.Len() != len(data) {
		return false
	}
	from := 0
	for _, p := range t.shared {
		own := t.own[from:p.at]
		if string(own) != string(data[:len(own)]) || p.text != string(data[len(own):len(own)+len(p.text)]) {
			return false
		}
		from, data = p.at, data[len(own)+len(p.text):]
	}
	return string(t.own[from:]) == string(data)
}

// Result is Whole for the results of an encoder.
func Result(data []byte, err error) (Text, error) { return Whole(data), err }
