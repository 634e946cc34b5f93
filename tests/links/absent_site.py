"""A site that dies in round 2 as often as it is asked, if it is client-4: run as a program, with its folder."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from dpfedvis.links import site_process
from dpfedvis.protocol.sum_messages import SendMasked
from dpfedvis.site.site import Site

if __name__ == "__main__":
    answer = Site._answer_sum

    def dying(self, request):
        if self.name == "client-4" and isinstance(request, SendMasked) and request.send.round == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer(self, request)

    Site._answer_sum = dying
    sys.exit(site_process.main(Path(sys.argv[1])))
