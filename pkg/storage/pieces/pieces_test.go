package pieces

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

// fieldSet returns a field set such as a kubelet's, about a pod's address.
func fieldSet(ip string, names int) string {
	var b strings.Builder
	b.WriteString(`{"f:status":{"f:podIPs":{".":{},"k:{\"ip\":\"` + ip + `\"}":{".":{},"f:ip":{}}}`)
	for i := range names {
		fmt.Fprintf(&b, `,"f:field-%d":{}`, i)
	}
	return b.String() + "}}"
}

func object(i int, sets ...string) string {
	text := fmt.Sprintf(`{"metadata":{"name":"p-%d","managedFields":[`, i)
	for j, s := range sets {
		text += fmt.Sprintf(`%.*s{"manager":"m%d","time":"%d","fieldsV1":%s}`, min(j, 1), ",", j, i, s)
	}
	return text + `]},"spec":{"a":"\"{\"f:"}}`
}

func check(t *testing.T, data []byte, text Text) {
	t.Helper()
	var out bytes.Buffer
	if err := text.Write(&out, 0); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"Bytes": text.Bytes(), "Write": out.Bytes(), "AppendTo": text.AppendTo(nil, 0)} {
		if !bytes.Equal(got, data) {
			t.Fatalf("%s: %q, want %q", name, got, data)
		}
	}
	if text.Len() != len(data) || !text.Equal(data) {
		t.Fatalf("%d bytes, want %d; equal: %v", text.Len(), len(data), text.Equal(data))
	}
	if len(data) == 0 {
		return
	}
	if got := text.AppendTo([]byte("x"), 1); string(got) != "x"+string(data[1:]) {
		t.Fatalf("without the first byte: %q", got)
	}
	for _, i := range []int{0, len(data) / 2, len(data) - 1} {
		other := bytes.Clone(data)
		if other[i]++; text.Equal(other) {
			t.Fatalf("equals another text, which differs at %d", i)
		}
	}
}

// Objects that the same programs have written have little of their own.
func TestAlikeObjectsShare(t *testing.T) {
	var bases Bases
	plain, own := 0, 0
	for i := range 1000 {
		data := []byte(object(i, fieldSet("10.0.0.1", 40), fieldSet(fmt.Sprint("10.1.2.", i), 60), `{"f:short":{}}`))
		text := bases.Pack(bytes.Clone(data))
		check(t, data, text)
		plain, own = plain+len(data), own+len(text.own)
	}
	if own*4 > plain {
		t.Errorf("%d of %d bytes are the objects' own", own, plain)
	}
	if len(bases.list) > 3 {
		t.Errorf("%d bases", len(bases.list))
	}
}

// What a tenant can write does not make bases grow without bound, and is looked at for a bounded time.
func TestBasesAreBounded(t *testing.T) {
	var bases Bases
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 500 {
		unlike := make([]byte, 300)
		for k := range unlike {
			unlike[k] = 'a' + byte(r.IntN(26))
		}
		data := []byte(object(i, `{"f:`+string(unlike)+`":{}}`))
		check(t, data, bases.Pack(bytes.Clone(data)))
	}
	if len(bases.list) != mostBases {
		t.Errorf("%d bases, want %d", len(bases.list), mostBases)
	}
	for _, hostile := range []string{
		strings.Repeat(fieldsBegin, 300_000),
		"x" + strings.Repeat(fieldsBegin+`"`, 200_000),
		"{" + strings.Repeat(fieldSet("", 10), 5_000),
		"x" + fieldSet("", 5_000),
		`x{"f:` + strings.Repeat(`\`, 200),
	} {
		looked := 0
		for _, set := range fieldSets([]byte(hostile)) {
			looked += len(set)
		}
		if looked > mostSets*longestBase {
			t.Errorf("looked at %d bytes", looked)
		}
		check(t, []byte(hostile), bases.Pack([]byte(hostile)))
	}
}

func TestPackConcurrently(t *testing.T) {
	var bases Bases
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 200 {
				data := []byte(object(i, fieldSet(fmt.Sprint(w, i), 20+w)))
				if got := bases.Pack(bytes.Clone(data)); !got.Equal(data) {
					t.Errorf("%q", got.Bytes())
				}
			}
		})
	}
	all.Wait()
}

func FuzzPack(f *testing.F) {
	f.Add([]byte(object(1, fieldSet("10.0.0.1", 20))), []byte(object(2, fieldSet("10.0.0.234", 20), fieldSet("", 30))))
	f.Add([]byte(`{"f:`), []byte("k8s\x00"+fieldSet(`\\\"`, 9)+fieldSet("", 12)))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var bases Bases
		for _, data := range [][]byte{first, second, first} {
			check(t, data, bases.Pack(bytes.Clone(data)))
		}
	})
}

func BenchmarkPack(b *testing.B) {
	var bases Bases
	all := make([][]byte, 512)
	for i := range all {
		all[i] = []byte(object(i, fieldSet("10.0.0.1", 40), fieldSet(fmt.Sprint("10.1.2.", i), 60)) + strings.Repeat(" ", 1500))
	}
	b.SetBytes(int64(len(all[0])))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		bases.Pack(all[i%len(all)])
	}
}
