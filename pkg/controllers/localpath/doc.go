// Package localpath provisions PersistentVolumes that are directories of nodes, for classes
// with the provisioner podium.dev/local-path.
//
// The scheduler selects the node of a claim's first pod. The controller then creates a
// volume with the path of a directory on that node: <root>/local-path/pvc-<UID of the
// claim>, where the node's kubelet says in an annotation of the Node what the root is. The
// kubelet creates the directory when the first pod mounts the volume, and adds a finalizer
// to the volume before it does. When the claim is gone and the reclaim policy is Delete,
// the controller deletes the volume; the kubelet removes the directory, then the
// finalizer. So only the deletion of a volume removes data, and only the node that has
// them.
//
// The size of a volume is not enforced: it only has to fit on the node's disk. An expansion
// therefore changes nothing on the node.
package localpath
