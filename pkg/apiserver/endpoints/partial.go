package endpoints

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver/wire"
	"podium/pkg/scheme"
	"podium/pkg/storage/pieces"
)

// partial encodes only the metadata of an object.
type partial struct {
	shown
	text bool // the object itself has no protobuf form
}

// JSON encodes the metadata.
func (p partial) JSON() (pieces.Text, error) {
	data, err := json.Marshal(&metav1.PartialObjectMetadata{ObjectMeta: objectMeta(p.Object())})
	if err != nil {
		return pieces.Text{}, fmt.Errorf("encode metadata: %w", err)
	}
	return pieces.Whole(data), nil
}

// Proto cuts the metadata out of the protobuf message of the object, if it has one.
func (p partial) Proto() (pieces.Text, error) {
	if p.text {
		return pieces.Result(scheme.BareProto(&metav1.PartialObjectMetadata{ObjectMeta: objectMeta(p.Object())}))
	}
	whole, err := p.shown.Proto()
	if err != nil {
		return pieces.Text{}, err
	}
	metadata, err := scheme.ProtoMetadata(whole.Bytes())
	if err != nil {
		return pieces.Text{}, err
	}
	out := append(make([]byte, 0, len(metadata)+4), 1<<3|2)
	out = binary.AppendUvarint(out, uint64(len(metadata)))
	return pieces.Whole(append(out, metadata...)), nil
}

// objectMeta returns the metadata of an object as a struct, which may share memory
// with obj.
func objectMeta(obj scheme.Object) metav1.ObjectMeta {
	if a, ok := obj.(metav1.ObjectMetaAccessor); ok {
		if m, ok := a.GetObjectMeta().(*metav1.ObjectMeta); ok {
			return *m
		}
	}
	return metav1.ObjectMeta{
		Name: obj.GetName(), GenerateName: obj.GetGenerateName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
		ResourceVersion: obj.GetResourceVersion(), Generation: obj.GetGeneration(),
		CreationTimestamp: obj.GetCreationTimestamp(), DeletionTimestamp: obj.GetDeletionTimestamp(),
		DeletionGracePeriodSeconds: obj.GetDeletionGracePeriodSeconds(),
		Labels:                     obj.GetLabels(), Annotations: obj.GetAnnotations(),
		OwnerReferences: obj.GetOwnerReferences(), Finalizers: obj.GetFinalizers(), ManagedFields: obj.GetManagedFields(),
	}
}

// writePartialList answers with the metadata of the objects of a list.
func writePartialList[E shown](c *call, f wire.Format, objects []E, meta metav1.ListMeta) error {
	list := items{texts: make([]pieces.Text, len(objects)), typed: wire.AppendJSONHead(nil, f.As.GroupVersion().WithKind(wire.PartialObjectMetadata))}
	for i, e := range objects {
		var err error
		if one := (partial{e, c.res.text}); f.Media == scheme.Protobuf {
			list.texts[i], err = one.Proto()
		} else {
			list.texts[i], err = one.JSON()
		}
		if err != nil {
			return err
		}
	}
	gvk := f.As.GroupVersion().WithKind(wire.PartialObjectMetadataList)
	return writeItems(c.w, c.r, f, gvk, &meta, list)
}
