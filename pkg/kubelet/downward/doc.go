// Package downward reads what a pod may know about itself: the fields and
// resources that fieldRef and resourceFieldRef name, in environment variables
// and in downwardAPI volumes.
package downward
