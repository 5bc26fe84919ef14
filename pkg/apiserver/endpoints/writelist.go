package endpoints

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/request"
	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage/watchcache"
)

// largeList is the size of a list, in bytes as stored, beyond which not all of its items are encoded
// before the first one is written.
const largeList = 8 << 20

// writeList answers with a list. It sums up the sizes first and then writes the
// cached bytes of each item, so that nothing is encoded twice.
func writeList[E shown](c *call, f wire.Format, objects []E, meta metav1.ListMeta) error {
	if f.Media == scheme.JSON && !f.Pretty && storedSize(objects) > largeList {
		return streamList(c, objects, meta)
	}
	items := make([][]byte, len(objects))
	for i, e := range objects {
		var err error
		if f.Media == scheme.Protobuf {
			items[i], err = c.res.show(e).Proto()
		} else {
			items[i], err = c.res.show(e).JSON()
		}
		if c.res.text && err == nil { // as upstream: only items with a Go type omit their kind
			items[i] = scheme.TypedJSON(c.res.gvk(), items[i])
		}
		if err != nil {
			return err
		}
	}
	return writeItems(c.w, c.r, f, c.res.served.ListGVK(), &meta, items)
}

// storedSize returns the size of objects that are stored, in bytes; 0 for others.
func storedSize[E shown](objects []E) (sum int) {
	for _, e := range objects {
		entry, ok := any(e).(*watchcache.Entry)
		if !ok {
			return 0
		}
		if data, err := entry.Message(); err == nil {
			sum += len(data)
		}
	}
	return sum
}

// streamList answers with a large list as JSON. One user gets few such answers at a time.
func streamList[E shown](c *call, objects []E, meta metav1.ListMeta) error {
	req := request.From(c.ctx)
	done, err := req.Heavy.Acquire(c.ctx, req.Flow, 1)
	if err != nil {
		return err
	}
	defer done()
	head, err := jsonHead(c.res.served.ListGVK(), &meta)
	if err != nil {
		return err
	}
	o := wire.BeginLarge(c.w, c.r, http.StatusOK, scheme.JSON)
	o.Write(head)
	for i, e := range objects {
		item, err := c.res.show(e).JSON()
		if err != nil {
			c.res.api.Log.Error("an object of a list cannot be encoded: the answer ends here", "kind", c.res.gvk().Kind, "err", err)
			panic(http.ErrAbortHandler)
		}
		if c.res.text {
			item = scheme.TypedJSON(c.res.gvk(), item)
		}
		if i > 0 {
			o.Write(comma)
		}
		if _, err := o.Write(item); err != nil {
			break // the client is gone
		}
	}
	o.Write([]byte(listTail))
	o.Close()
	return nil
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
func writeItems(w http.ResponseWriter, r *http.Request, f wire.Format, gvk schema.GroupVersionKind, meta *metav1.ListMeta, items [][]byte) error {
	if f.Media == scheme.Protobuf {
		return writeProtoList(w, r, gvk, meta, items)
	}
	head, err := jsonHead(gvk, meta)
	if err != nil {
		return err
	}
	if f.Media == scheme.YAML || f.Pretty {
		text := append(append(head, bytes.Join(items, comma)...), listTail...)
		return writeReadable(w, r, f, text)
	}
	size := len(head) + len(listTail) + max(0, len(items)-1)
	for _, item := range items {
		size += len(item)
	}
	o := wire.Begin(w, r, http.StatusOK, scheme.JSON, size)
	o.Write(head)
	for i, item := range items {
		if i > 0 {
			o.Write(comma)
		}
		o.Write(item)
	}
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
func writeProtoList(w http.ResponseWriter, r *http.Request, gvk schema.GroupVersionKind, meta *metav1.ListMeta, items [][]byte) error {
	metadata, err := meta.Marshal()
	if err != nil {
		return fmt.Errorf("encode list metadata: %w", err)
	}
	size := wire.SizeBytes(len(metadata))
	for _, item := range items {
		size += wire.SizeBytes(len(item))
	}
	head := wire.AppendProtoHead(nil, gvk, size)
	o := wire.Begin(w, r, http.StatusOK, scheme.Protobuf, len(head)+size+len(wire.ProtoTail))
	var tag [1 + binary.MaxVarintLen64]byte
	field := func(number byte, content []byte) {
		tag[0] = number<<3 | 2
		o.Write(tag[:1+binary.PutUvarint(tag[1:], uint64(len(content)))])
		o.Write(content)
	}
	o.Write(head)
	field(1, metadata)
	for _, item := range items {
		field(2, item)
	}
	o.Write([]byte(wire.ProtoTail))
	o.Close()
	return nil
}
