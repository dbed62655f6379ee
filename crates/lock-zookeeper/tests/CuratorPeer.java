// Curator's InterProcessMutex and LeaderSelector, told what to do line by line.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.retry.RetryOneTime;

public class CuratorPeer {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], new RetryOneTime(100));
        client.start();
        InterProcessMutex lock = new InterProcessMutex(client, arguments[1]);
        CountDownLatch leads = new CountDownLatch(1);
        CountDownLatch resigns = new CountDownLatch(1);
        LeaderSelector selector = new LeaderSelector(client, arguments[1], new LeaderSelectorListenerAdapter() {
            public void takeLeadership(CuratorFramework client) throws Exception {
                leads.countDown();
                resigns.await();
            }
        });
        selector.setId("theirs");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            switch (order) {
                case "try" -> System.out.println(lock.acquire(300, TimeUnit.MILLISECONDS));
                case "acquire" -> System.out.println(lock.acquire(60, TimeUnit.SECONDS));
                case "campaign" -> {
                    selector.start();
                    System.out.println(leads.await(60, TimeUnit.SECONDS));
                }
                case "resign" -> {
                    resigns.countDown();
                    System.out.println("resigned");
                }
                case "leader" -> System.out.println(selector.getLeader().getId().replace('\n', '|'));
                case "revoke" -> {
                    for (String node : lock.getParticipantNodes()) {
                        Revoker.attemptRevoke(client, node);
                    }
                    System.out.println("revoked");
                }
                default -> {
                    lock.release();
                    System.out.println("released");
                }
            }
        }
        client.close();
    }
}
