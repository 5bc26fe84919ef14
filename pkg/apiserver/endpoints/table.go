package endpoints

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
)

// row is one object of a table.
type row struct {
	obj func() scheme.Object
	enc wire.Encoded
}

// respondTable answers with objects as `kubectl get` prints them.
func (c *call) respondTable(code int, f wire.Format, rows []row, meta metav1.ListMeta) error {
	t, err := c.table(f, rows, meta, true)
	if err != nil {
		return err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("encode table: %w", err)
	}
	if f.Media == scheme.YAML || f.Pretty {
		return writeReadable(c.w, c.r, f, text)
	}
	wire.WriteText(c.w, c.r, code, scheme.JSON, append(text, '\n'))
	return nil
}

// table builds the table; only the first of a watch has its head.
func (c *call) table(f wire.Format, rows []row, meta metav1.ListMeta, head bool) (*metav1.Table, error) {
	include := metav1.IncludeObjectPolicy(c.query().Get("includeObject"))
	errs := metavalidation.ValidateTableOptions(&metav1.TableOptions{IncludeObject: include})
	if err := invalidOptions("TableOptions", errs); err != nil {
		return nil, err
	}
	t := &metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: f.As.Kind, APIVersion: f.As.GroupVersion().String()},
		ListMeta: meta,
		Rows:     make([]metav1.TableRow, len(rows)),
	}
	if head {
		t.ColumnDefinitions = c.res.columns()
	}
	now := c.res.api.Now()
	for i, r := range rows {
		shown, err := c.rowObject(f, include, r)
		if err != nil {
			return nil, err
		}
		t.Rows[i] = metav1.TableRow{Cells: c.res.cells(r.obj(), now), Object: runtime.RawExtension{Raw: shown}}
	}
	return t, nil
}

// rowObject is the object as it stands beside a row's cells.
func (c *call) rowObject(f wire.Format, include metav1.IncludeObjectPolicy, r row) ([]byte, error) {
	switch include {
	case metav1.IncludeNone:
		return nil, nil
	case metav1.IncludeObject:
		bare, err := r.enc.JSON()
		if err != nil {
			return nil, err
		}
		return scheme.TypedJSON(c.res.gvk(), bare), nil
	}
	bare, err := partial(r).JSON()
	if err != nil {
		return nil, err
	}
	return scheme.TypedJSON(f.As.GroupVersion().WithKind(wire.PartialObjectMetadata), bare), nil
}

// columns are the kind's, or name and age.
func (r *resource) columns() []metav1.TableColumnDefinition {
	if r.Row != nil {
		return r.Columns
	}
	doc := metav1.ObjectMeta{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: doc["name"]},
		{Name: "Created At", Type: "date", Description: doc["creationTimestamp"]},
	}
}

func (r *resource) cells(obj scheme.Object, now time.Time) []any {
	if r.Row != nil {
		return r.Row(obj, now)
	}
	return []any{obj.GetName(), obj.GetCreationTimestamp().UTC().Format(time.RFC3339)}
}
