package budget

import "google.golang.org/protobuf/encoding/protowire"

// maxProtoDepth is more than the nesting of any kind.
const maxProtoDepth = 24

// fields counts length-delimited fields at every depth.
type fields struct{ all, tiny int }

// scan counts the fields of a message. It does not know which fields are
// messages and treats as one whatever parses as one.
func (f *fields) scan(data []byte, depth int) {
	for len(data) > 0 && f.tiny <= maxTiny && f.all <= maxFields {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 || number <= 0 {
			return
		}
		data = data[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(number, kind, data); size < 0 {
				return
			}
			data = data[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(data)
		if size < 0 {
			return
		}
		data = data[size:]
		f.all++
		if len(value) <= tiny {
			f.tiny++
		} else if depth < maxProtoDepth {
			f.scan(value, depth+1)
		}
	}
}
