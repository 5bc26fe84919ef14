// Package images sees to it that a container's image is there before the
// container is made: the pull policy, pull secrets, pulls that go on in the
// background, and the back-off after failed ones; that a pod uses no image that
// others have pulled with credentials it does not have; and that unused images
// go when the disk fills up.
package images
