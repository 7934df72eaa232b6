package kafka

import (
	"fmt"
	"strings"
	"time"
)

// stamp is what the name of an exact batch says: all by which another relay can
// send it again, or find out whether it is there.
type stamp struct {
	cluster  string // an id: a producer's is worth nothing in another cluster
	producer int64
	base     int32 // sequence of the first record
	to       place
	end      int64     // of the partition when this was planned: the batch is not before it
	at       time.Time // when this was planned, by the clock of its relay
}

const stampFormat = "k1 %s %d %d %d %d %d %s"

func (s stamp) String() string {
	return fmt.Sprintf(stampFormat, s.cluster, s.producer, s.base, s.to.partition, s.end, s.at.Unix(), s.to.topic)
}

func parseStamp(text string) (stamp, error) {
	var s stamp
	var seconds int64
	_, err := fmt.Sscanf(text, stampFormat, &s.cluster, &s.producer, &s.base, &s.to.partition, &s.end, &seconds, &s.to.topic)
	if err != nil || strings.Count(text, " ") != strings.Count(stampFormat, " ") {
		return stamp{}, fmt.Errorf("read the name of an exact batch, %.100q (was it made by another version?)", text)
	}
	s.at = time.Unix(seconds, 0)
	return s, nil
}
