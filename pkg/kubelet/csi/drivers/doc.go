// Package drivers has the CSI drivers that are a part of the kubelet: nfs and iscsi. They
// run the node's own programs: mount(8) with mount.nfs, and iscsiadm, blkid, fsck and mkfs.
// Their volumes are those of package intree.
package drivers
