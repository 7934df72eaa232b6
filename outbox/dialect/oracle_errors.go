package dialect

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
)

// Busy: resource busy, deadlock, can't serialize, a wait that timed out, a lock
// on an object that timed out.
func (oracle) Busy(err error) bool { return hasORA(err, 54, 60, 8177, 30006, 4021) }

// Missing: table or view, user. A view of the server's that the user may not see
// is missing, too.
func (oracle) Missing(err error) bool { return hasORA(err, 942, 1435, 1918) }

// Denied: insufficient privileges, also on a tablespace; a quota; and what newer
// servers say where the object may be seen, but not this.
func (oracle) Denied(err error) bool { return hasORA(err, 1031, 1950, 1536, 41900) }

var oraCode = regexp.MustCompile(`\bORA-(\d+)`)

// hasORA looks for an error's number. One driver tells it by a method, all have
// it in the text, where a block's errors follow each other.
func hasORA(err error, codes ...int) bool {
	if err == nil {
		return false
	}
	var coded interface{ Code() int }
	if errors.As(err, &coded) && slices.Contains(codes, coded.Code()) {
		return true
	}
	for _, found := range oraCode.FindAllStringSubmatch(err.Error(), -1) {
		if code, err := strconv.Atoi(found[1]); err == nil && slices.Contains(codes, code) {
			return true
		}
	}
	return false
}

// Made: a name that is used, columns that have an index, a row that is there.
func (oracle) Made(err error) bool { return hasORA(err, 955, 1408, 1) }

// Gone: no such table or view, index, or other object.
func (oracle) Gone(err error) bool { return hasORA(err, 942, 1418, 4043) }
