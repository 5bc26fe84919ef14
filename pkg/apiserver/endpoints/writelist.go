package endpoints

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage/pieces"
)

// Sizes of lists as JSON, in bytes.
const (
	wholeList = 1 << 20 // up to this size all items are encoded before the first one is written
	largeList = 8 << 20 // what is beyond is written when it is the request's turn
)

// items are the encoded items of a list.
type items struct {
	texts []pieces.Text
	typed []byte // JSON with which each item begins instead of its brace: its kind; nil: nothing
}

// writeList answers with a list. It sums up the sizes first and then writes the
// cached bytes of each item, so that nothing is encoded twice.
func writeList[E shown](c *call, f wire.Format, objects []E, meta metav1.ListMeta) error {
	list := items{texts: make([]pieces.Text, 0, len(objects))}
	if c.res.text { // as upstream: only items with a Go type omit their kind
		list.typed = wire.AppendJSONHead(nil, c.res.gvk())
	}
	size := 0
	for i, e := range objects {
		item, err := encodeItem(c, f, e)
		if err != nil {
			return err
		}
		list.texts = append(list.texts, item)
		if size += item.Len(); size > wholeList && f.Media == scheme.JSON && !f.Pretty {
			return streamList(c, list, size, objects[i+1:], meta)
		}
	}
	return writeItems(c.w, c.r, f, c.res.served.ListGVK(), &meta, list)
}

// encodeItem encodes an object as an item of a list in the form f.
func encodeItem[E shown](c *call, f wire.Format, e E) (pieces.Text, error) {
	if f.Media == scheme.Protobuf {
		return c.res.show(e).Proto()
	}
	return c.res.show(e).JSON()
}

// streamList answers with a list as JSON: items that are encoded, of size bytes, and more objects, each of
// which is encoded when it is written.
func streamList[E shown](c *call, list items, size int, more []E, meta metav1.ListMeta) error {
	head, err := jsonHead(c.res.served.ListGVK(), &meta)
	if err != nil {
		return err
	}
	o := wire.BeginLarge(c.w, c.r, http.StatusOK, scheme.JSON)
	o.Write(head)
	list.writeJSON(o)
	turn := false
	for _, e := range more {
		item, err := encodeItem(c, wire.Format{Media: scheme.JSON}, e)
		if err != nil {
			c.res.api.Log.Error("an object of a list cannot be encoded: the answer ends here", "kind", c.res.gvk().Kind, "err", err)
			panic(http.ErrAbortHandler)
		}
		if size += item.Len(); size > largeList && !turn {
			done, err := c.takeTurn()
			if err != nil { // the request has ended
				panic(http.ErrAbortHandler)
			}
			defer done()
			turn = true
		}
		o.Write(comma)
		if err := list.writeItem(o, item); err != nil {
			break // the client is gone
		}
	}
	o.Write([]byte(listTail))
	o.Close()
	return nil
}

// takeTurn blocks until the request may work on a large body or list, of which one user has few at a
// time; done ends that.
func (c *call) takeTurn() (done func(), err error) {
	req := request.From(c.ctx)
	return req.Heavy.Acquire(c.ctx, req.Flow, 1)
}

// size returns the length of what writeJSON writes.
func (l items) size() int {
	n := max(0, len(l.texts)-1)
	for _, item := range l.texts {
		if n += item.Len(); l.typed != nil {
			n += len(l.typed) - 1
		}
	}
	return n
}

// writeJSON writes the items as the elements of a JSON list.
func (l items) writeJSON(w io.Writer) {
	for i, item := range l.texts {
		if i > 0 {
			w.Write(comma)
		}
		l.writeItem(w, item)
	}
}

func (l items) writeItem(w io.Writer, item pieces.Text) error {
	if l.typed == nil {
		return item.Write(w, 0)
	}
	w.Write(l.typed)
	return item.Write(w, 1)
}

// What surrounds the items of a list in JSON.
var comma = []byte{','}

const listTail = "]}\n"

func jsonHead(gvk schema.GroupVersionKind, meta *metav1.ListMeta) ([]byte, error) {
	head := wire.AppendJSONHead(nil, gvk)
	metadata, err := json.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("encode list metadata: %w", err)
	}
	return append(append(append(head, `"metadata":`...), metadata...), `,"items":[`...), nil
}

// writeItems answers with a list of encoded items.
func writeItems(w http.ResponseWriter, r *http.Request, f wire.Format, gvk schema.GroupVersionKind, meta *metav1.ListMeta, list items) error {
	if f.Media == scheme.Protobuf {
		return writeProtoList(w, r, gvk, meta, list.texts)
	}
	head, err := jsonHead(gvk, meta)
	if err != nil {
		return err
	}
	if f.Media == scheme.YAML || f.Pretty {
		text := bytes.NewBuffer(head)
		list.writeJSON(text)
		text.WriteString(listTail)
		return writeReadable(w, r, f, text.Bytes())
	}
	o := wire.Begin(w, r, http.StatusOK, scheme.JSON, len(head)+list.size()+len(listTail))
	o.Write(head)
	list.writeJSON(o)
	o.Write([]byte(listTail))
	o.Close()
	return nil
}

// writeReadable answers with JSON converted to YAML or indented JSON.
func writeReadable(w http.ResponseWriter, r *http.Request, f wire.Format, text []byte) (err error) {
	if f.Media == scheme.YAML {
		text, err = yaml.JSONToYAML(text)
	} else if f.Pretty {
		var b bytes.Buffer
		err = json.Indent(&b, text, "", "  ")
		text = b.Bytes()
	}
	if err != nil {
		return fmt.Errorf("write as %s: %w", f.Media, err)
	}
	wire.WriteText(w, r, http.StatusOK, f.Media, text)
	return nil
}

// writeProtoList answers with a protobuf list. Every list type has its metadata as
// field 1 and its items as field 2.
func writeProtoList(w http.ResponseWriter, r *http.Request, gvk schema.GroupVersionKind, meta *metav1.ListMeta, items []pieces.Text) error {
	metadata, err := meta.Marshal()
	if err != nil {
		return fmt.Errorf("encode list metadata: %w", err)
	}
	size := wire.SizeBytes(len(metadata))
	for _, item := range items {
		size += wire.SizeBytes(item.Len())
	}
	head := wire.AppendProtoHead(nil, gvk, size)
	o := wire.Begin(w, r, http.StatusOK, scheme.Protobuf, len(head)+size+len(wire.ProtoTail))
	var tag [1 + binary.MaxVarintLen64]byte
	field := func(number byte, content pieces.Text) {
		tag[0] = number<<3 | 2
		o.Write(tag[:1+binary.PutUvarint(tag[1:], uint64(content.Len()))])
		content.Write(o, 0)
	}
	o.Write(head)
	field(1, pieces.Whole(metadata))
	for _, item := range items {
		field(2, item)
	}
	o.Write([]byte(wire.ProtoTail))
	o.Close()
	return nil
}
