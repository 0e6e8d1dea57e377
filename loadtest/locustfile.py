"""Can the service carry the typical day? One day in `--day-seconds`, its height at `--peak-rps`.

    locust -f loadtest/locustfile.py --headless --host http://127.0.0.1:9000 --day-seconds 30 --peak-rps 40

Run it in a process of its own: Locust patches the standard library and must come before `ssl`. Every user sends one
request per second, so the number of users is the rate. Judge latency by the service's own histogram, not by Locust's.
"""

import sys
from pathlib import Path

from locust import FastHttpUser, LoadTestShape, constant_throughput, events, task
from locust.argument_parser import LocustArgumentParser

sys.path.insert(0, str(Path(__file__).parents[1]))
from loadtest.typical_day import DAY_HOURS, PEAK_RPS, rps_at  # noqa: E402 - found only after the path is set


@events.init_command_line_parser.add_listener
def add_options(parser: LocustArgumentParser) -> None:
    parser.add_argument("--day-seconds", type=float, default=86_400.0, help="How long one day takes, seconds.")
    parser.add_argument("--peak-rps", type=float, default=PEAK_RPS, help="Requests per second at the day's height.")
    parser.add_argument("--from-hour", type=float, default=0.0, help="Hour of the day to begin at.")
    parser.add_argument("--to-hour", type=float, default=DAY_HOURS, help="Hour of the day to end at.")
    parser.add_argument("--tokens", type=int, default=16, help="Tokens that each request generates.")


class Chat(FastHttpUser):
    """One client that asks once a second."""

    wait_time = constant_throughput(1)

    @task
    def infer(self) -> None:
        # A connection that is kept stays with one replica; new ones would get no work.
        with self.client.post(
            "/infer",
            json={"tokens": self.environment.parsed_options.tokens},
            headers={"connection": "close"},
            catch_response=True,
        ) as response:
            if response.status_code != 200:
                response.failure(f"status {response.status_code}")


class TypicalDay(LoadTestShape):
    """The rate of the typical day, one user for each request per second."""

    def tick(self) -> tuple[int, float] | None:
        options = self.runner.environment.parsed_options
        hour = options.from_hour + self.get_run_time() / options.day_seconds * DAY_HOURS
        if hour >= options.to_hour:
            return None
        users = max(1, round(rps_at(hour, options.peak_rps)))
        return users, max(10.0, options.peak_rps)
